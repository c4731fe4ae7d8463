/* Asks a gateway for GET /fleet, and prints a line for each node (fleet_status.h). */
#include "supervisor/fleet_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/codec/json.h"
#include "common/proc/command_line.h"
#include "common/proc/gateway_client.h"
#include "supervisor/terminal_text.h"

static const char USAGE[] = "usage: rollgate fleet status [--gateway URL] [--key-file FILE] "
                            "[--ca-file FILE] [--json]\n";

/* Counts the places of a node (an absent name: without an owner), and those that are not whole. */
static unsigned count_places(const struct json *places, struct str name, unsigned *ret_partial)
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

static void print_status(const struct json *fleet)
{
    const struct json *nodes = json_get(fleet, "nodes"), *places = json_get(fleet, "places"), *n;
    char name[TERMINAL_NAME], state[TERMINAL_NAME], address[TERMINAL_NAME], since[32];
    unsigned owned, partial;

    printf("fleet %s\n\n%-24s %-9s %6s %9s  %-20s  %s\n",
           terminal_name(json_string(json_get(fleet, "name")), name), "node", "state", "places",
           "not whole", "since", "address");
    for (uint32_t i = 0; (n = json_at(nodes, i)); i++) {
        owned = count_places(places, json_string(json_get(n, "name")), &partial);
        write_since(json_get(n, "since"), since, sizeof(since));
        printf("%-24s %-9s %6u %9u  %-20s  %s\n",
               terminal_name(json_string(json_get(n, "name")), name),
               terminal_name(json_string(json_get(n, "state")), state), owned, partial, since,
               terminal_name(json_string(json_get(n, "address")), address));
    }
    owned = count_places(places, str_of(NULL, 0), &partial);
    if (owned > 0)
        printf("%-24s %-9s %6u %9u\n", "(no owner)", "", owned, partial);
}

int fleet_status_command(int argc, char **argv)
{
    bool json = command_line_take_flag(&argc, argv, "--json");
    struct gateway_client_options o =
        gateway_client_take_options(&argc, argv, "http://127.0.0.1:8600");
    struct buf mistakes = {0}, answer = {0};
    struct gateway_client *client;
    const struct json *fleet;
    struct arena arena = {0};
    struct err e;
    int status = 0;

    if (argc != 1) {
        fprintf(stderr, "%s", USAGE);
        return 2;
    }
    client = gateway_client_new(&o, &mistakes);
    if (client)
        status = gateway_client_call(client, "GET", "/fleet", STR(""), &answer);
    if (!client)
        fprintf(stderr, "rollgate fleet: %.*s", (int)mistakes.len, mistakes.p);
    else if (status != 200 || json_parse(&arena, buf_str(&answer), &fleet, &e)) {
        fprintf(stderr, "rollgate fleet: %d %.*s\n", status, (int)answer.len, answer.p);
        status = 0;
    } else if (json)
        printf("%.*s\n", (int)answer.len, answer.p);
    else
        print_status(fleet);
    gateway_client_free(client);
    arena_done(&arena);
    buf_done(&answer);
    buf_done(&mistakes);
    return status == 200 ? 0 : 1;
}
