/* The dispatcher's second copy (desk.h). A wait for all records is over when the waits before
 * it are. So each record has a wait from its append on, even if no request waits for it. */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/fleet/redis_store.h"
#include "common/fleet/second_copy.h"
#include "common/journal/journal.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/book_record.h"
#include "dispatcher/book_replay.h"
#include "dispatcher/desk.h"

enum {
    LOOK_MS = 20,
    READS = 64,          /* a group has few records */
    TELLING_VERSION = 11 /* builds that read records of this version know RECORD_TELLING */
};

struct desk_copy {
    struct desk *desk;
    struct store *store; /* the copy's */
    struct second_copy *copy;
    struct book_replay *replay; /* records that are not applied yet; NULL: requests are served */
    void (*on_read)(struct desk *d);
    struct list_head waits; /* struct desk_wait, the oldest first */
    struct loop_timer look; /* active while records are read, or a wait is for all of them */
};

struct desk_wait {
    struct desk_copy *copy;
    struct desk_done done; /* fn NULL: no call */
    struct list_item entry;
    uint64_t since_ms;
    bool stored;      /* only the journal is waited for */
    size_t group_len; /* 0: it waits for all records */
    char group[];
};

/* --- waits --- */

static void on_look(struct loop_timer *t);

/* Ends a wait. If it was one of a record, waits for all records may be over, too. */
static void wait_free(struct desk_wait *w)
{
    struct desk_copy *c = w->copy;

    list_remove(&w->entry);
    if (loop_timer_active(&c->look))
        loop_timer_set(c->desk->loop, &c->look, 0, on_look);
    free(w);
}

static void on_wait_over(void *ctx)
{
    struct desk_wait *w = ctx;
    struct desk_done done = w->done;

    wait_free(w);
    if (done.fn)
        done.fn(done.ctx);
}

static void on_wait_failed(void *ctx, const struct err *e);

/* Waits for the group's records. Returns whether they are durable now. */
static bool begin_wait(struct desk_wait *w)
{
    const struct copy_done done = {on_wait_over, w, on_wait_failed};

    w->stored = second_copy_await(w->copy->copy, str_of(w->group, w->group_len), done);
    return w->stored && journal_await(w->copy->desk->journal, on_wait_over, w) > 0;
}

/* Reports the failure. The wait goes on for those that wait for all records, unless another node
 * has the dispatcher now, or the group is lost. */
static void on_wait_failed(void *ctx, const struct err *e)
{
    struct desk_wait *w = ctx;
    struct desk_done done = w->done;
    bool ends = e->kind == ERR_OWNER_CHANGED || e->kind == ERR_SESSION_LOST;

    if (done.failed || ends)
        w->done = (struct desk_done){0};
    if (ends)
        wait_free(w);
    else if (begin_wait(w))
        on_wait_over(w);
    if (done.failed)
        done.failed(done.ctx, e);
}

static struct desk_wait *add_wait(struct desk_copy *c, struct str group,
                                  const struct desk_done *done)
{
    struct desk_wait *w = mem_zalloc(sizeof(*w) + group.len);

    w->copy = c;
    w->done = done ? *done : (struct desk_done){0};
    w->since_ms = loop_now_ms(c->desk->loop);
    w->group_len = group.len;
    memcpy(w->group, group.len > 0 ? group.p : "", group.len);
    list_append(&c->waits, &w->entry);
    return w;
}

int desk_copy_await(struct desk *d, struct str group, const struct desk_done *done)
{
    struct desk_copy *c = d->copy;
    struct desk_wait *w;

    if (group.len == 0 && list_is_empty(&c->waits) &&
        second_copy_is_level(c->copy, FLEET_DISPATCHER))
        return journal_await(d->journal, done->fn, done->ctx);
    w = add_wait(c, group, done);
    if (group.len == 0) {
        if (!loop_timer_active(&c->look))
            loop_timer_set(d->loop, &c->look, LOOK_MS, on_look);
        return 0;
    }
    if (!begin_wait(w))
        return 0;
    wait_free(w);
    return 1;
}

void desk_copy_forget(struct desk *d, void *ctx)
{
    struct desk_wait *w;

    LIST_EACH(&d->copy->waits, w, struct desk_wait, entry)
        if (w->done.ctx == ctx)
            w->done = (struct desk_done){0};
}

/* Ends a wait for all records with an error, if there is one for it. */
static bool fail_wait_for_all(struct desk_wait *w)
{
    struct desk_copy *c = w->copy;
    struct desk_done done = w->done;
    uint64_t limit = (uint64_t)c->desk->heritage->config->fleet_outage_ms;
    struct err e = {0};

    if (!done.failed)
        return false;
    if (place_table_own_epoch(c->desk->heritage->fleet, FLEET_DISPATCHER) == 0)
        (void)second_copy_check_read(c->copy, FLEET_DISPATCHER, STR(""), &e);
    else if (loop_now_ms(c->desk->loop) - w->since_ms >= limit)
        (void)err_set(&e, ERR_STORAGE_UNAVAILABLE,
                      "the fleet's store has not confirmed all records for %u ms "
                      "(--fleet-outage); they are kept here: repeat the request",
                      (unsigned)limit);
    if (e.kind == ERR_NONE)
        return false;
    wait_free(w);
    done.failed(done.ctx, &e);
    return true;
}

/* Returns the first wait for all records that no record's wait precedes, or NULL. */
static struct desk_wait *find_ended(const struct desk_copy *c)
{
    struct desk_wait *w;

    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a freed one left */
    LIST_EACH(&c->waits, w, struct desk_wait, entry) {
        if (w->group_len > 0 && !w->stored)
            return NULL;
        if (!w->stored)
            return w;
    }
    return NULL;
}

/* Ends waits for all records. Calls may add and cancel waits, so each search begins again. Returns
 * whether some are left. */
static bool end_waits_for_all(struct desk_copy *c)
{
    struct desk_wait *w, *next;
    bool left = false;

    while (second_copy_is_level(c->copy, FLEET_DISPATCHER) && (w = find_ended(c))) {
        w->stored = true;
        if (journal_await(c->desk->journal, on_wait_over, w) > 0)
            on_wait_over(w);
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    LIST_EACH_SAFE(&c->waits, w, next, struct desk_wait, entry) {
        if (w->group_len > 0 || w->stored)
            continue;
        left = true;
        if (fail_wait_for_all(w))
            break; /* the next look finds the others */
    }
    return left;
}

/* --- reading --- */

static int on_back(void *ctx, uint32_t place, struct str group, struct str record, bool alone,
                   struct err *e)
{
    struct desk_copy *c = ctx;

    (void)place;
    if (!c->replay || alone)
        return err_set(e, ERR_IO, "the fleet's store has records that it should not have");
    if (journal_append(c->desk->journal, group, record, NULL, NULL, e) < 0) {
        e->kind = e->kind == ERR_IO ? ERR_STORAGE_FAILED : e->kind;
        return -1;
    }
    desk_copy_add(c->desk, group, record);
    (void)book_replay_add(c->replay, group, record);
    return 0;
}

static int on_anew(void *ctx, uint32_t place, struct str group)
{
    struct desk_copy *c = ctx;
    struct group *g = book_group(&c->desk->book, group);

    (void)place;
    if (!c->replay)
        return -1;
    if (g)
        book_remove(&c->desk->book, g);
    book_replay_forget(c->replay, group);
    journal_drop_session(c->desk->journal, group);
    return 0;
}

/* A group that cannot be read is logged by the copy. */
static void on_read_back(void *ctx, uint32_t place, struct str group, const struct err *e)
{
    (void)ctx;
    (void)place;
    (void)group;
    (void)e;
}

static bool is_group_needed(void *ctx, uint32_t place, struct str group)
{
    struct desk_copy *c = ctx;

    (void)place;
    return c->replay || desk_needs_group(c->desk, group);
}

static void on_reconnect(void *ctx, const char *why)
{
    redis_store_reconnect(((struct desk_copy *)ctx)->store, why);
}

int desk_copy_apply(struct desk *d, struct err *e)
{
    return book_replay_run(d->copy->replay, desk_apply_replayed, d, e);
}

/* Reports whether all is read and may be served. A drain begins nothing. */
static bool has_read(const struct desk_copy *c)
{
    struct err e;

    return c->replay && !c->desk->draining && desk_copy_check_read(c->desk, &e) == 0 &&
           second_copy_unread(c->copy) == 0;
}

/* Begins to serve when all is read. */
static void end_reading(struct desk_copy *c)
{
    struct err e = {0};

    if (desk_copy_apply(c->desk, &e)) {
        child_failed(c->desk->heritage, e.text);
        exit(1); /* the next process tries again */
    }
    book_replay_free(c->replay);
    c->replay = NULL;
    c->on_read(c->desk);
}

static void on_look(struct loop_timer *t)
{
    struct desk_copy *c = CONTAINER_OF(t, struct desk_copy, look);
    bool again = c->replay != NULL;

    if (has_read(c))
        end_reading(c);
    again |= end_waits_for_all(c);
    if (again)
        loop_timer_set(c->desk->loop, t, LOOK_MS, on_look);
}

void desk_copy_replay(struct desk *d, struct str group, struct str record)
{
    struct desk_copy *c = d->copy;

    if (book_replay_add(c->replay, group, record))
        second_copy_forget_session(c->copy, group);
    second_copy_add(c->copy, FLEET_DISPATCHER, group, record,
                    (uint32_t)journal_records(d->journal, group));
}

void desk_copy_start(struct desk *d, void (*on_read)(struct desk *d))
{
    d->copy->on_read = on_read;
    second_copy_add_place(d->copy->copy, FLEET_DISPATCHER, d->journal);
    loop_timer_set(d->loop, &d->copy->look, LOOK_MS, on_look);
}

/* --- records --- */

void desk_copy_add(struct desk *d, struct str group, struct str record)
{
    second_copy_add(d->copy->copy, FLEET_DISPATCHER, group, record,
                    (uint32_t)(journal_records(d->journal, group) - 1));
}

bool desk_copy_begin_group(struct desk *d, struct str group)
{
    if (desk_needs_group(d, group) || !desk_copy_drop(d, group))
        return true;
    journal_drop_session(d->journal, group); /* the log begins with the new group */
    return false;
}

bool desk_copy_drop(struct desk *d, struct str group)
{
    return second_copy_drop_session(d->copy->copy, group);
}

int desk_copy_check_write(const struct desk *d, struct str group, struct err *e)
{
    return second_copy_check(d->copy->copy, FLEET_DISPATCHER, group, e);
}

int desk_copy_check_read(const struct desk *d, struct err *e)
{
    return second_copy_check_read(d->copy->copy, FLEET_DISPATCHER, STR(""), e);
}

bool desk_is_refusing(const struct desk *d)
{
    struct err e;

    return d->copy && desk_copy_check_read(d, &e);
}

bool desk_copy_is_sent(const struct desk *d)
{
    return place_table_own_epoch(d->heritage->fleet, FLEET_DISPATCHER) == 0 ||
           second_copy_behind(d->copy->copy) == 0;
}

/* --- making --- */

/* A build that does not know a record must not get the place. */
static struct copy_role read_role(struct str record, bool has_fragments)
{
    (void)has_fragments;
    return (struct copy_role){.version = record_is_telling(record) ? TELLING_VERSION : 0};
}

int desk_copy_open(struct desk *d, struct err *e)
{
    const struct config *config = d->heritage->config;
    struct desk_copy *c;
    struct second_copy_options o = {.loop = d->loop,
                                    .table = d->heritage->fleet,
                                    .lease_ms = (unsigned)config->fleet_lease_ms,
                                    .outage_ms = (unsigned)config->fleet_outage_ms,
                                    .reads = READS,
                                    .read_role = read_role,
                                    .add_back = on_back,
                                    .begin_anew = on_anew,
                                    .on_read_back = on_read_back,
                                    .is_needed = is_group_needed,
                                    .reconnect = on_reconnect};

    if (!d->heritage->fleet)
        return 0;
    d->copy = c = mem_zalloc(sizeof(*c));
    c->desk = d;
    d->book.places = d->heritage->fleet;
    c->replay = book_replay_new();
    o.ctx = c;
    o.store = c->store = redis_store_open(d->loop, str_cstr(config->fleet), o.lease_ms, e);
    if (!o.store)
        return -1;
    if (config->fleet_acks > 1)
        redis_store_await_replica(o.store);
    c->copy = second_copy_new(&o);
    return 0;
}

void desk_copy_close(struct desk *d)
{
    struct desk_copy *c = d->copy;
    struct desk_wait *w;

    if (!c)
        return;
    loop_timer_stop(d->loop, &c->look);
    second_copy_free(c->copy);
    if (d->journal)
        journal_close(d->journal);
    d->journal = NULL;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    while ((w = LIST_FIRST_OF(&c->waits, struct desk_wait, entry)))
        wait_free(w);
    book_replay_free(c->replay);
    free(c);
    d->copy = NULL;
}
