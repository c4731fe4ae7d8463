/* Commands that ask a gateway for the nodes of its fleet (fleet_nodes.h). */
#include "supervisor/fleet_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/buf.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/proc/command_line.h"
#include "common/proc/gateway_client.h"
#include "supervisor/terminal_text.h"

static const char USAGE[] =
    "usage: rollgate fleet status [--json] | endpoints [--wait N] [--json] | drain NODE\n"
    "                      [--gateway URL] [--key-file FILE] [--ca-file FILE]\n";

enum { POLL_MS = 200, VAIN_POLLS = 15 };

unsigned fleet_nodes_count_places(const struct json *places, struct str name, unsigned *ret_partial)
{
    unsigned n = 0;
    const struct json *p;

    *ret_partial = 0;
    for (uint32_t i = 0; (p = json_at(places, i)); i++) {
        if (!str_eq(json_string(json_get(p, "node")), name))
            continue;
        n++;
        *ret_partial += !json_is_true(json_get(p, "whole"));
    }
    return n;
}

static void write_since(const struct json *v, char *out, size_t size)
{
    double seconds = 0;
    struct tm tm;
    time_t at;

    (void)json_to_double(v, &seconds);
    at = (time_t)seconds;
    (void)gmtime_r(&at, &tm);
    (void)strftime(out, size, "%Y-%m-%d %H:%M:%SZ", &tm);
}

/* Prints the indexes of places with lost records, if there are any. */
static void print_losses(const struct json *places)
{
    char name[TERMINAL_NAME];
    const struct json *p, *index;
    int64_t number;
    unsigned n = 0;

    for (uint32_t i = 0; (p = json_at(places, i)); i++) {
        if (!json_is_true(json_get(p, "loss")))
            continue;
        index = json_get(p, "index");
        printf(n++ == 0 ? "\nrecords are lost, or may be, of " : ", ");
        if (json_to_i64(index, &number) == 0)
            printf("%lld", (long long)number);
        else
            printf("%s", terminal_name(json_string(index), name));
    }
    if (n > 0)
        printf("\n");
}

static void print_status(const struct json *fleet)
{
    const struct json *nodes = json_get(fleet, "nodes"), *places = json_get(fleet, "places"), *n;
    char name[TERMINAL_NAME], state[TERMINAL_NAME], address[TERMINAL_NAME], since[32];
    unsigned owned, partial;

    printf("fleet %s\n\n%-24s %-9s %6s %9s  %-20s  %s\n",
           terminal_name(json_string(json_get(fleet, "name")), name), "node", "state", "places",
           "not whole", "since", "address");
    for (uint32_t i = 0; (n = json_at(nodes, i)); i++) {
        owned = fleet_nodes_count_places(places, json_string(json_get(n, "name")), &partial);
        write_since(json_get(n, "since"), since, sizeof(since));
        printf("%-24s %-9s %6u %9u  %-20s  %s\n",
               terminal_name(json_string(json_get(n, "name")), name),
               terminal_name(json_string(json_get(n, "state")), state), owned, partial, since,
               terminal_name(json_string(json_get(n, "address")), address));
    }
    owned = fleet_nodes_count_places(places, str_of(NULL, 0), &partial);
    if (owned > 0)
        printf("%-24s %-9s %6u %9u\n", "(no owner)", "", owned, partial);
    print_losses(places);
}

/* Counts the nodes that are up, and prints their addresses if asked to. */
static unsigned print_endpoints(const struct json *fleet, bool prints)
{
    const struct json *nodes = json_get(fleet, "nodes"), *n;
    char address[TERMINAL_NAME];
    unsigned up = 0;

    for (uint32_t i = 0; (n = json_at(nodes, i)); i++) {
        if (!str_eq_c(json_string(json_get(n, "state")), "up"))
            continue;
        up++;
        if (prints)
            printf("http://%s\n", terminal_name(json_string(json_get(n, "address")), address));
    }
    return up;
}

static const struct json *find_node(const struct json *fleet, const char *name)
{
    const struct json *nodes = json_get(fleet, "nodes"), *n;

    for (uint32_t i = 0; (n = json_at(nodes, i)); i++)
        if (str_eq_c(json_string(json_get(n, "name")), name))
            return n;
    return NULL;
}

/* --- requests --- */

/* Calls a gateway. Returns the status, 0 without an answer, or -1 after a line about a mistake in
 * the options. The answer, which the arena and the buffer have, is in *ret if the status is 200. */
static int call_gateway(const struct gateway_client_options *o, const char *method,
                        const char *path, struct arena *arena, struct buf *answer,
                        const struct json **ret)
{
    struct buf mistakes = {0};
    struct gateway_client *client = gateway_client_new(o, &mistakes);
    struct err e;
    int status = -1;

    buf_clear(answer);
    *ret = NULL;
    if (client)
        status = gateway_client_call(client, method, path, STR(""), answer);
    else
        fprintf(stderr, "rollgate fleet: %.*s", (int)mistakes.len, mistakes.p);
    if (status == 200 && json_parse(arena, buf_str(answer), ret, &e))
        *ret = NULL;
    gateway_client_free(client);
    buf_done(&mistakes);
    return status;
}

/* Calls a gateway like call_gateway. Returns NULL after a line about why there is no answer. */
static const struct json *ask(const struct gateway_client_options *o, const char *method,
                              const char *path, struct arena *arena, struct buf *answer)
{
    const struct json *v;
    int status = call_gateway(o, method, path, arena, answer, &v);

    if (!v && status >= 0)
        fprintf(stderr, "rollgate fleet: %d %.*s\n", status, (int)answer->len, answer->p);
    return v;
}

static void pause_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&t, NULL);
}

/* Waits until the gateway has started. Returns what it says of its fleet, or NULL after a line. */
static const struct json *await_fleet(const struct gateway_client_options *o, struct arena *arena,
                                      struct buf *answer)
{
    const struct json *fleet;
    bool waits = false;
    int status;

    while ((status = call_gateway(o, "GET", "/fleet", arena, answer, &fleet)) == 0 ||
           status == 503) {
        if (!waits)
            fprintf(stderr, "rollgate fleet: waiting for %s: %.*s\n", o->url, (int)answer->len,
                    answer->p);
        waits = true;
        pause_ms(POLL_MS);
    }
    if (!fleet && status > 0)
        fprintf(stderr, "rollgate fleet: %d %.*s\n", status, (int)answer->len, answer->p);
    return fleet;
}

/* Waits until `wait` nodes are up, then prints; 0: does not wait. -1: there is no answer. */
static int await_endpoints(const struct gateway_client_options *o, uint64_t wait, bool json,
                           struct arena *arena, struct buf *answer)
{
    const struct json *fleet = NULL;

    if (wait == 0)
        fleet = ask(o, "GET", "/fleet", arena, answer);
    while (wait > 0 && (fleet = await_fleet(o, arena, answer)) &&
           print_endpoints(fleet, false) < wait) {
        arena_reset(arena);
        pause_ms(POLL_MS);
    }
    if (!fleet)
        return -1;
    if (json)
        printf("%.*s\n", (int)answer->len, answer->p);
    else
        (void)print_endpoints(fleet, true);
    return 0;
}

/* Whether the node has ended: others take its places now, or never. */
static bool is_lost(const struct json *fleet, const char *name)
{
    const struct json *n = find_node(fleet, name);

    return !n || str_eq_c(json_string(json_get(n, "state")), "lost");
}

/* Waits until the node owns nothing. Polls without an answer, or while it is lost, are limited. */
static int await_drained(const struct gateway_client_options *o, const char *name,
                         struct arena *arena, struct buf *answer)
{
    unsigned owned = 1, partial, vain = 0;
    const struct json *fleet = NULL;

    while (owned > 0 && vain < VAIN_POLLS) {
        arena_reset(arena);
        pause_ms(POLL_MS);
        fleet = ask(o, "GET", "/fleet", arena, answer);
        if (fleet)
            owned = fleet_nodes_count_places(json_get(fleet, "places"), str_cstr(name), &partial);
        vain = !fleet || is_lost(fleet, name) ? vain + 1 : 0;
    }
    if (owned == 0)
        printf("node %s has no places any more\n", name);
    else if (fleet)
        fprintf(stderr, "rollgate fleet: node %s has ended, and %u of its places were not taken\n",
                name, owned);
    return owned == 0 ? 0 : -1;
}

/* Asks the node itself, then waits. */
static int drain_node(struct gateway_client_options *o, const char *name, struct arena *arena,
                      struct buf *answer)
{
    const struct json *fleet = ask(o, "GET", "/fleet", arena, answer), *n;
    struct gateway_client_options to = *o;
    char address[TERMINAL_NAME], url[TERMINAL_NAME + 8];

    n = fleet ? find_node(fleet, name) : NULL;
    if (fleet && !n)
        fprintf(stderr, "rollgate fleet: the fleet has no node \"%s\"\n", name);
    if (!n)
        return -1;
    (void)snprintf(url, sizeof(url), "http://%s",
                   terminal_name(json_string(json_get(n, "address")), address));
    to.url = url;
    if (!ask(&to, "POST", "/fleet/drain", arena, answer))
        return -1;
    return await_drained(o, name, arena, answer);
}

/* --- commands --- */

bool fleet_nodes_has_command(const char *word)
{
    return strcmp(word, "status") == 0 || strcmp(word, "endpoints") == 0 ||
           strcmp(word, "drain") == 0;
}

int fleet_nodes_command(int argc, char **argv)
{
    bool json = command_line_take_flag(&argc, argv, "--json"), is_status, is_drain;
    const char *wait = command_line_take_value(&argc, argv, "--wait", NULL);
    struct gateway_client_options o =
        gateway_client_take_options(&argc, argv, "http://127.0.0.1:8600");
    struct buf answer = {0};
    struct arena arena = {0};
    const struct json *fleet;
    uint64_t wanted = 0;
    int rc = -1;

    is_status = argc == 1 && strcmp(argv[0], "status") == 0 && !wait;
    is_drain = argc == 2 && strcmp(argv[0], "drain") == 0 && !wait && !json;
    if ((!is_status && !is_drain && (argc != 1 || strcmp(argv[0], "endpoints") != 0)) ||
        (wait && (str_to_u64(str_cstr(wait), FLEET_NODES_MAX, &wanted) || wanted == 0))) {
        fprintf(stderr, "%s", USAGE);
        return 2;
    }
    if (is_drain) {
        rc = drain_node(&o, argv[1], &arena, &answer);
    } else if (!is_status) {
        rc = await_endpoints(&o, wanted, json, &arena, &answer);
    } else if ((fleet = ask(&o, "GET", "/fleet", &arena, &answer))) {
        rc = 0;
        if (json)
            printf("%.*s\n", (int)answer.len, answer.p);
        else
            print_status(fleet);
    }
    arena_done(&arena);
    buf_done(&answer);
    return rc ? 1 : 0;
}
