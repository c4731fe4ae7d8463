/*
 * Commands that change the entries of a lost node in the store (fleet_repair.h). Each lists the
 * entries twice, a lease apart: a beat that changes meanwhile is of a living owner.
 *
 *     take INDEX --incomplete   claim, delete the logs that may lack records, release: the next
 *                               owner is a living node, which reports all other ids as lost
 *     forget NODE               delete its entries, if no place needs them
 */
#include "supervisor/fleet_repair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/fleet/redis_store.h"
#include "common/os/loop.h"
#include "common/proc/command_line.h"
#include "supervisor/terminal_text.h"

static const char USAGE[] =
    "usage: rollgate fleet take INDEX --incomplete | forget NODE --fleet URL\n";

enum { LIMIT_MS = 5000, LEASE_MS = 5000 /* of nodes whose entries do not say it */ };

/* No node has this name. */
static const struct str SELF = STR_LIT("fleet take");

struct repair {
    struct loop *loop;
    struct store *store;
    struct arena arena; /* texts of entries and logs */
    struct map entries; /* struct store_entry, by key */
    bool listing, answered;
    enum store_verdict verdict;
    struct store_answer got; /* without texts */
    char owner[TERMINAL_NAME], value[TERMINAL_NAME];
    char why[TERMINAL_NAME]; /* "": the store answers */
    VEC(struct str) logs;    /* of a place */
    struct map complete;     /* those that have all records */
    size_t n_complete;       /* number of them that are sessions, not images of one */
};

/* --- calls --- */

static void on_answer(void *ctx, const struct store_answer *a)
{
    struct repair *r = ctx;

    r->answered = true;
    r->got = *a;
    (void)terminal_name(a->owner, r->owner);
    (void)terminal_name(a->value, r->value);
    if (a->verdict == STORE_LOST || a->verdict == STORE_FAILED)
        (void)terminal_name(str_cstr(a->why), r->why);
    for (size_t i = 0; i < a->n_texts && a->logs; i++) {
        struct str id = arena_str(&r->arena, a->texts[i]);

        *vec_push(&r->logs) = id;
        if (a->logs[i].complete)
            (void)map_set(&r->complete, id, r);
    }
}

static struct store_call begin_call(struct repair *r)
{
    r->answered = false;
    return (struct store_call){on_answer, r};
}

/* Waits for the answer. Returns 0, or -1 after a line about why it is not "done". */
static int await_done(struct repair *r, const char *what)
{
    while (!r->answered)
        (void)loop_poll(r->loop, -1);
    if (r->got.verdict == STORE_DONE)
        return 0;
    fprintf(stderr, "rollgate fleet: %s: %s\n", what,
            r->why[0] ? r->why : store_verdict_name(r->got.verdict));
    return -1;
}

static void on_entry(void *ctx, const struct store_entry *entry, const char *why)
{
    struct repair *r = ctx;
    struct store_entry *copy;

    if (!r->listing)
        return;
    if (!entry) {
        r->listing = false;
        (void)snprintf(r->why, sizeof(r->why), "%s", why ? why : "");
        return;
    }
    copy = ARENA_NEW(&r->arena, struct store_entry);
    *copy = *entry;
    copy->key = arena_str(&r->arena, entry->key);
    copy->value = arena_str(&r->arena, entry->value);
    copy->owner = arena_str(&r->arena, entry->owner);
    (void)map_set(&r->entries, copy->key, copy);
}

/* Lists all entries. -1 after a line about why there is none. */
static int list_entries(struct repair *r)
{
    map_done(&r->entries);
    r->entries = (struct map){0};
    r->listing = true;
    store_watch(r->store, on_entry, r);
    while (r->listing)
        (void)loop_poll(r->loop, -1);
    if (!r->why[0])
        return 0;
    fprintf(stderr, "rollgate fleet: the store does not answer: %s\n", r->why);
    return -1;
}

static const struct store_entry *find_entry(const struct repair *r, const char *key)
{
    return map_get(&r->entries, str_cstr(key));
}

/* Returns the longest lease of a node. */
static uint64_t find_lease(const struct repair *r)
{
    int64_t longest = 0, lease;
    struct map_slot *slot;
    struct arena a = {0};
    struct err e;

    for (size_t at = 0; (slot = map_next(&r->entries, &at));) {
        const struct store_entry *entry = slot->value;
        const struct json *v = NULL;

        if (!str_starts(entry->key, STR("node:")) || json_parse(&a, entry->value, &v, &e) ||
            json_to_i64(json_get(v, "lease_ms"), &lease))
            continue;
        longest = MAX_OF(longest, lease);
    }
    arena_done(&a);
    return longest > 0 ? (uint64_t)longest : LEASE_MS;
}

/* Lists the entries again after a lease. */
static int list_later(struct repair *r)
{
    uint64_t until = clock_ms() + find_lease(r), now;

    while ((now = clock_ms()) < until)
        (void)loop_poll(r->loop, (int)(until - now));
    return list_entries(r);
}

static int refuse(const char *what, const char *why, struct str name)
{
    char text[TERMINAL_NAME];

    fprintf(stderr, "rollgate fleet: %s %s%s\n", what, why, terminal_name(name, text));
    return -1;
}

/* --- take --- */

struct taken_place {
    uint32_t index;
    char key[32];  /* of its entry */
    char name[32]; /* in messages */
};

static int parse_place(const char *word, struct taken_place *ret)
{
    struct str text = str_cstr(word);
    uint64_t index;

    if (strcmp(word, "dispatcher") == 0) {
        *ret = (struct taken_place){FLEET_DISPATCHER, "place:d", "the dispatcher's place"};
        return 0;
    }
    if (str_to_u64(text, FLEET_BLOCKS * FLEET_BLOCK_SIZE - 1, &index))
        return -1;
    ret->index = (uint32_t)index;
    (void)snprintf(ret->key, sizeof(ret->key), "place:%u", ret->index);
    (void)snprintf(ret->name, sizeof(ret->name), "place %u", ret->index);
    return 0;
}

/* Returns the name of the node that makes ids with the index. */
static struct str find_minter(const struct repair *r, uint32_t index)
{
    const struct store_entry *block;
    char key[32];

    (void)snprintf(key, sizeof(key), "block:%u", index / FLEET_BLOCK_SIZE);
    block = index == FLEET_DISPATCHER ? NULL : find_entry(r, key);
    return block ? block->value : STR("");
}

static const struct store_entry *find_node(const struct repair *r, struct str node)
{
    char key[FLEET_NAME_MAX + 8];

    (void)snprintf(key, sizeof(key), "node:%.*s", (int)node.len, node.p);
    return find_entry(r, key);
}

static uint64_t find_beat(const struct repair *r, struct str node)
{
    const struct store_entry *entry = find_node(r, node);

    return entry ? entry->beat : 0;
}

/* Checks that nobody owns the place, and that the store may lack records of it. Without an entry
 * its node must not live: it would bring the entry back. Returns the beat to claim it with. */
static int check_place(struct repair *r, const struct taken_place *t, uint64_t *ret_beat)
{
    const struct store_entry *before, *now;
    uint64_t minted;

    if (list_entries(r))
        return -1;
    before = find_entry(r, t->key);
    minted = find_beat(r, find_minter(r, t->index));
    if (before && before->whole)
        return refuse(t->name, "is whole: a living node serves it, or will", STR(""));
    if (list_later(r))
        return -1;
    now = find_entry(r, t->key);
    if (now && now->whole)
        return refuse(t->name, "is whole: a living node serves it, or will", STR(""));
    if (now && (!before || now->beat != before->beat))
        return refuse(t->name, "has a living owner: node ", now->owner);
    if (!now && find_beat(r, find_minter(r, t->index)) != minted)
        return refuse(t->name, "does not exist, and its node lives: ", find_minter(r, t->index));
    *ret_beat = now ? now->beat : 0;
    return 0;
}

/* Returns the session of a log. A log of an image has the name SESSION~IMAGE. */
static struct str session_of(const struct taken_place *t, struct str log)
{
    return t->index == FLEET_DISPATCHER ? log : str_sub(log, 0, str_find(log, STR("~"), 0));
}

/* Deletes the logs that may lack records, and counts the sessions that are complete. Returns -1 if
 * the store does not answer. */
static int drop_incomplete(struct repair *r, const struct taken_place *t, uint64_t epoch)
{
    char id[TERMINAL_NAME];

    for (size_t i = 0; i < r->logs.n; i++) {
        struct str log = r->logs.at[i], session = session_of(t, log);

        if (map_get(&r->complete, session)) {
            r->n_complete += session.len == log.len;
            continue;
        }
        store_drop(r->store, t->index, epoch, &(struct store_cut){.session = log}, begin_call(r));
        if (await_done(r, "a log was not deleted"))
            return -1;
        if (session.len == log.len)
            printf("lost: %s\n", terminal_name(log, id));
    }
    return 0;
}

static int take_place(struct repair *r, const struct taken_place *t)
{
    struct store_claim claim = {.place = t->index,
                                .block = t->index / FLEET_BLOCK_SIZE,
                                .me = SELF,
                                .reads = UINT32_MAX,
                                .incomplete = true,
                                .bare = true};
    uint64_t epoch;

    if (check_place(r, t, &claim.beat))
        return -1;
    store_claim(r->store, &claim, begin_call(r));
    while (!r->answered)
        (void)loop_poll(r->loop, -1);
    if (r->got.verdict == STORE_ALIVE)
        return refuse(t->name, "has a living owner: node ", str_cstr(r->owner));
    if (await_done(r, t->name))
        return -1;
    epoch = r->got.epoch;
    store_read(r->store, t->index, str_of(NULL, 0), 0, begin_call(r));
    if (await_done(r, t->name) || drop_incomplete(r, t, epoch))
        return -1;
    store_release(r->store, t->index, epoch, 0, begin_call(r));
    if (await_done(r, t->name))
        return -1;
    printf("%s was taken: %zu of its %s are complete. All other ids are lost.\n", t->name,
           r->n_complete, t->index == FLEET_DISPATCHER ? "groups" : "sessions");
    return 0;
}

/* --- forget --- */

/* Returns why a place prevents the deletion. */
static const char *name_obstacle(enum store_verdict verdict)
{
    return verdict == STORE_CONFLICT     ? "has sessions"
           : verdict == STORE_INCOMPLETE ? "is not whole: see rollgate fleet take"
                                         : "has an owner: wait until no node needs it";
}

static int forget_node(struct repair *r, struct str node)
{
    uint64_t beat;
    char place[TERMINAL_NAME + 8];

    if (list_entries(r))
        return -1;
    if (!find_node(r, node))
        return refuse("the fleet", "has no node ", node);
    beat = find_beat(r, node);
    if (list_later(r))
        return -1;
    redis_store_forget(r->store, node, beat, begin_call(r));
    while (!r->answered)
        (void)loop_poll(r->loop, -1);
    if (r->got.verdict == STORE_ALIVE)
        return refuse("it lives:", "node ", node);
    (void)snprintf(place, sizeof(place), "place %s", r->value);
    if (r->got.verdict != STORE_DONE && r->value[0])
        return refuse(place, name_obstacle(r->got.verdict), STR(""));
    if (await_done(r, "the node was not forgotten"))
        return -1;
    printf("node %.*s is forgotten, and its indexes are free\n", (int)node.len, node.p);
    return 0;
}

/* --- commands --- */

static int run_take(struct repair *r, const char *word, bool incomplete)
{
    struct taken_place t = {0};

    if (parse_place(word, &t)) {
        fprintf(stderr, "rollgate fleet: take: \"%s\" is no index: 0 to %d, or dispatcher\n", word,
                FLEET_BLOCKS * FLEET_BLOCK_SIZE - 1);
        return 2;
    }
    if (!incomplete) {
        fprintf(stderr,
                "rollgate fleet: take: sessions of %s would be lost for good, those of which the "
                "store lacks records. If the node that has them will not return, add "
                "--incomplete\n",
                t.name);
        return 2;
    }
    return take_place(r, &t) ? 1 : 0;
}

static void repair_done(struct repair *r)
{
    store_free(r->store);
    loop_free(r->loop);
    map_done(&r->entries);
    map_done(&r->complete);
    vec_done(&r->logs);
    arena_done(&r->arena);
}

bool fleet_repair_has_command(const char *word)
{
    return strcmp(word, "take") == 0 || strcmp(word, "forget") == 0;
}

int fleet_repair_command(int argc, char **argv)
{
    bool incomplete = command_line_take_flag(&argc, argv, "--incomplete");
    const char *url = command_line_take_value(&argc, argv, "--fleet", NULL);
    struct repair r = {0};
    struct err e = {0};
    int status = 2;

    bool takes = strcmp(argv[0], "take") == 0;

    if (argc != 2 || !url || (incomplete && !takes)) {
        fprintf(stderr, "%s", USAGE);
        return 2;
    }
    log_setup("fleet", LOG_ERROR, LOG_TEXT);
    r.loop = loop_new(&e);
    r.store = r.loop ? redis_store_open(r.loop, str_cstr(url), LIMIT_MS, &e) : NULL;
    if (r.store && takes)
        status = run_take(&r, argv[1], incomplete);
    else if (r.store)
        status = forget_node(&r, str_cstr(argv[1])) ? 1 : 0;
    else
        fprintf(stderr, "rollgate fleet: %s\n", e.text);
    repair_done(&r);
    return status;
}
