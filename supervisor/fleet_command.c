/* `rollgate fleet check URL`: checks whether a server can be the store of a fleet. First reads what
 * the server reports about itself, then runs the trial under a name that is erased afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/fleet/redis_info.h"
#include "common/fleet/redis_store.h"
#include "common/fleet/store_url.h"
#include "common/os/loop.h"
#include "common/proc/command_line.h"
#include "supervisor/commands.h"
#include "supervisor/doctor.h"
#include "supervisor/fleet_nodes.h"
#include "supervisor/fleet_repair.h"
#include "supervisor/store_trial.h"

/* --- the command --- */

enum { LIMIT_MS = 5000 };

struct asked {
    bool answered;
    enum store_verdict verdict;
    struct buf text; /* answer to INFO, or why there is none */
};

static void on_answer(void *ctx, const struct store_answer *a)
{
    struct asked *asked = ctx;

    asked->answered = true;
    asked->verdict = a->verdict;
    if (a->why)
        buf_puts(&asked->text, a->why);
    else if (a->n_texts > 0)
        buf_add_str(&asked->text, a->texts[0]);
}

static void await_answer(struct loop *loop, const struct asked *asked)
{
    while (!asked->answered)
        (void)loop_poll(loop, -1);
}

static void check_version(struct doctor *d, struct str info)
{
    struct str version = redis_info_find(info, "redis_version");
    struct str valkey = redis_info_find(info, "valkey_version");
    bool old = redis_info_major(info) < REDIS_OLDEST_MAJOR;

    if (redis_info_major(info) == 0)
        doctor_add(d, "version", FINDING_ERROR, "run Redis or Valkey 7.0 or newer",
                   "INFO has no readable redis_version");
    else
        doctor_add(d, "version", old ? FINDING_ERROR : FINDING_OK,
                   old ? "run Redis or Valkey 7.0 or newer" : NULL, "%s %.*s",
                   valkey.len ? "Valkey" : "Redis", (int)(valkey.len ? valkey.len : version.len),
                   valkey.len ? valkey.p : version.p);
    if (redis_info_number(info, "cluster_enabled"))
        doctor_add(d, "cluster", FINDING_ERROR, "use a server outside a cluster",
                   "Redis Cluster is not supported");
}

static void check_memory(struct doctor *d, struct str info)
{
    struct str policy = redis_info_find(info, "maxmemory_policy");
    uint64_t max = redis_info_number(info, "maxmemory"),
             used = redis_info_number(info, "used_memory");

    if (!str_eq_c(policy, "noeviction"))
        doctor_add(d, "memory", FINDING_ERROR, "set maxmemory-policy to noeviction",
                   "maxmemory-policy is %.*s: the server would delete records", (int)policy.len,
                   policy.p ? policy.p : "");
    else if (max == 0)
        doctor_add(d, "memory", FINDING_WARNING, "set maxmemory below the machine's memory",
                   "maxmemory has no limit: the kernel may kill the server");
    else
        doctor_add(d, "memory", FINDING_OK, NULL, "noeviction, %llu of %llu MiB are used",
                   (unsigned long long)(used >> 20), (unsigned long long)(max >> 20));
}

static void check_copies(struct doctor *d, struct str info)
{
    uint64_t replicas = redis_info_number(info, "connected_slaves");

    if (replicas == 0)
        doctor_add(d, "replica", FINDING_WARNING, "run a replica",
                   "no replica: if this server is lost, nodes wait until another one is there");
    else
        doctor_add(d, "replica", FINDING_OK, NULL, "%llu", (unsigned long long)replicas);
    if (redis_info_number(info, "aof_enabled") == 0)
        doctor_add(d, "aof", FINDING_WARNING, "set appendonly yes",
                   "appendonly is off: after a restart nodes send all records again");
    else
        doctor_add(d, "aof", FINDING_OK, NULL, "appendonly is on");
}

/* Checks the server's own figures. Returns false if no trial is possible. */
static bool check_server(struct doctor *d, struct loop *loop, struct store *store)
{
    struct asked asked = {0};
    bool reached;

    redis_store_info(store, (struct store_call){on_answer, &asked});
    await_answer(loop, &asked);
    reached = asked.verdict != STORE_LOST;
    if (!reached) {
        doctor_add(d, "connection", FINDING_ERROR, NULL, "%.*s", (int)asked.text.len, asked.text.p);
    } else if (asked.verdict != STORE_DONE) {
        doctor_add(d, "server", FINDING_WARNING,
                   "allow INFO, or check version 7.0, maxmemory-policy noeviction and replicas by "
                   "hand",
                   "records that a failover loses with their node are not noticed without INFO: "
                   "%.*s",
                   (int)asked.text.len, asked.text.p);
    } else {
        check_version(d, buf_str(&asked.text));
        check_memory(d, buf_str(&asked.text));
        check_copies(d, buf_str(&asked.text));
    }
    buf_done(&asked.text);
    return reached;
}

/* Runs all checks of one server. The trial has a name that no fleet has. */
static void check_store(struct doctor *d, const char *url, const char *fleet)
{
    struct err e = {0};
    struct loop *loop = loop_new(&e);
    struct store *store = loop ? redis_store_open(loop, str_cstr(url), LIMIT_MS, &e) : NULL;
    char name[128];

    (void)snprintf(name, sizeof(name), "%s.check-%llx-%lx", fleet,
                   (unsigned long long)clock_wall_ms(), (unsigned long)getpid());
    if (store)
        redis_store_set_name(store, name);
    if (!store) {
        doctor_add(d, "connection", FINDING_ERROR, NULL, "%s", e.text);
    } else if (check_server(d, loop, store)) {
        struct asked asked = {0};

        store_trial_run(d, loop, store);
        redis_store_erase(store, (struct store_call){on_answer, &asked});
        await_answer(loop, &asked);
        if (asked.verdict != STORE_DONE)
            doctor_add(d, "erase", FINDING_WARNING, "delete these keys",
                       "keys that begin with rg:%s: are left: %.*s", name, (int)asked.text.len,
                       asked.text.p);
        buf_done(&asked.text);
    }
    store_free(store);
    loop_free(loop);
}

int fleet_command(int argc, char **argv)
{
    bool json;
    struct doctor d = {0};
    struct store_url url;
    struct err e = {0};

    if (argc > 1 && fleet_nodes_has_command(argv[1]))
        return fleet_nodes_command(argc - 1, argv + 1);
    if (argc > 1 && fleet_repair_has_command(argv[1]))
        return fleet_repair_command(argc - 1, argv + 1);
    json = command_line_take_flag(&argc, argv, "--json");
    if (argc != 3 || strcmp(argv[1], "check") != 0) {
        fprintf(stderr,
                "usage: rollgate fleet check URL [--json] | status | endpoints | drain NODE |\n"
                "                      take INDEX --incomplete --fleet URL | forget NODE --fleet "
                "URL\n");
        return 2;
    }
    if (store_url_parse(str_cstr(argv[2]), &url, &e)) {
        fprintf(stderr, "rollgate fleet: %s\n", e.text);
        return 2;
    }
    log_setup("fleet", LOG_ERROR, LOG_TEXT); /* the findings already say what the log would */
    check_store(&d, argv[2], url.name);
    store_url_done(&url);
    return doctor_report(&d, json);
}
