#include "supervisor/top_fleet.h"

#include <stdio.h>

#include "common/codec/json.h"
#include "common/proc/gateway_client.h"
#include "supervisor/fleet_nodes.h"
#include "supervisor/terminal_text.h"

enum { PATH_MAX_BYTES = 160 };

/* Asks a node for a path. Returns its answer in the arena, or NULL. */
static const struct json *ask_node(struct gateway_client *c, const char *path, struct str node,
                                   struct arena *a)
{
    char whole[PATH_MAX_BYTES];
    struct buf answer = {0};
    const struct json *v = NULL;
    struct err e;

    (void)snprintf(whole, sizeof(whole), "%snode=%.*s", path, (int)node.len, node.p);
    if (gateway_client_call(c, "GET", whole, STR(""), &answer) != 200 ||
        json_parse(a, arena_str(a, buf_str(&answer)), &v, &e))
        v = NULL;
    buf_done(&answer);
    return v;
}

/* Writes the places that a node owns. */
static void put_places(const struct json *places, struct str name, struct json_out *o)
{
    unsigned partial;

    json_out_member_i64(o, "places", fleet_nodes_count_places(places, name, &partial));
    json_out_member_i64(o, "not_whole", partial);
}

/* Writes what only the node itself knows. */
static void put_own(struct gateway_client *c, struct str name, struct arena *a, struct json_out *o)
{
    const struct json *fleet = ask_node(c, "/fleet?", name, a), *own = json_get(fleet, "own"), *p;
    const struct json *total = json_get(ask_node(c, "/stats?step=14400&", name, a), "total");
    double behind = 0;

    if (!fleet || !total)
        return;
    for (uint32_t i = 0; (p = json_at(own, i)); i++)
        behind += json_number_of(p, "behind");
    json_out_member_i64(o, "behind", (int64_t)behind);
    json_out_member_value(o, "sessions", json_get(fleet, "sessions"));
    json_out_member_value(o, "calls", json_get(fleet, "calls"));
    json_out_member_value(o, "ended", json_get(total, "sessions"));
    json_out_member_value(o, "reward_mean", json_get(total, "reward_mean"));
    json_out_member_value(o, "pass_rate", json_get(total, "pass_rate"));
}

static void put_nodes(struct gateway_client *c, const struct json *fleet, struct json_out *o)
{
    const struct json *nodes = json_get(fleet, "nodes"), *n;

    json_out_obj(o);
    json_out_member_value(o, "name", json_get(fleet, "name"));
    json_out_member_arr(o, "nodes");
    for (uint32_t i = 0; (n = json_at(nodes, i)); i++) {
        struct str name = json_string(json_get(n, "name"));
        struct arena a = {0};

        json_out_obj(o);
        json_out_member_str(o, "name", name);
        json_out_member_value(o, "state", json_get(n, "state"));
        json_out_member_value(o, "address", json_get(n, "address"));
        put_places(json_get(fleet, "places"), name, o);
        if (!str_eq_c(json_string(json_get(n, "state")), "lost"))
            put_own(c, name, &a, o);
        json_out_end_obj(o);
        arena_done(&a);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

void top_fleet_read(struct gateway_client *c, struct str stats, struct buf *ret)
{
    struct buf answer = {0};
    struct arena a = {0};
    const struct json *v = NULL;
    struct json_out o = json_out_to(ret);
    struct err e;

    if (stats.len > 0 && json_parse(&a, stats, &v, &e) == 0 && json_string(json_get(v, "node")).p &&
        gateway_client_call(c, "GET", "/fleet", STR(""), &answer) == 200 &&
        json_parse(&a, buf_str(&answer), &v, &e) == 0)
        put_nodes(c, v, &o);
    arena_done(&a);
    buf_done(&answer);
}

static void print_number(const struct json *n, const char *name, int width, int decimals)
{
    double v;

    if (json_to_double(json_get(n, name), &v) == 0)
        printf(" %*.*f", width, decimals, v);
    else
        printf(" %*s", width, "-");
}

static void print_node(const struct json *n)
{
    char name[TERMINAL_NAME], state[TERMINAL_NAME], address[TERMINAL_NAME];

    printf("%-14s %-9s", terminal_name(json_string(json_get(n, "name")), name),
           terminal_name(json_string(json_get(n, "state")), state));
    print_number(n, "places", 6, 0);
    print_number(n, "not_whole", 9, 0);
    print_number(n, "behind", 8, 0);
    print_number(n, "sessions", 8, 0);
    print_number(n, "calls", 8, 0);
    print_number(n, "ended", 8, 0);
    print_number(n, "reward_mean", 8, 3);
    printf("  %s\n", terminal_name(json_string(json_get(n, "address")), address));
}

void top_fleet_print(struct str fleet)
{
    struct arena a = {0};
    const struct json *v = NULL, *nodes, *n;
    struct err e;

    if (fleet.len > 0 && json_parse(&a, fleet, &v, &e) == 0) {
        nodes = json_get(v, "nodes");
        printf("%-14s %-9s %6s %9s %8s %8s %8s %8s %8s  %s\n", "node", "state", "places",
               "not whole", "behind", "sessions", "calls", "ended", "reward", "address");
        for (uint32_t i = 0; (n = json_at(nodes, i)); i++)
            print_node(n);
        printf("\n");
    }
    arena_done(&a);
}
