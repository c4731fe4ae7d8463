/* A worker with a second copy in a store in memory. The journal is a real one, records are plain
 * texts. */
#ifndef RG_UNIT_COPY_KIT_H
#define RG_UNIT_COPY_KIT_H

#include "common/fleet/second_copy.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"
#include "memory_store.h"
#include "testing.h"
#include "worker/ledger/ledger.h"

enum { LIMIT_MS = 20000, OUTAGE_MS = 60000 };

/* --- a worker --- */

struct fixture {
    struct loop *loop;
    struct memory_store store;
    struct place_table *table;
    struct second_copy *copy;
    struct journal *journal;
    char dir[64];
    unsigned outage_ms;
    int stored, failed; /* ends of waits */
    int reconnected;
    bool full;       /* the journal takes no record of the store */
    bool in_use;     /* no session can be forgotten */
    int marked;      /* sessions that were marked */
    bool unmarkable; /* the journal takes no mark */
    bool left_over;  /* logs that the worker has not added are not needed */
    struct buf read; /* ids of sessions that were read, with ! if they are lost */
    enum err_kind why;
};

static inline int on_replayed(void *ctx, struct str id, struct str payload, struct err *e)
{
    struct fixture *f = ctx;

    (void)e;
    second_copy_add(f->copy, PLACE, id, payload, (uint32_t)journal_records(f->journal, id));
    return 0;
}

static inline void append_to_journal(struct fixture *f, struct str id, struct str record)
{
    struct err e = {0};

    cr_assert_eq(journal_append(f->journal, id, record, NULL, NULL, &e), 1, "%s", e.text);
    second_copy_add(f->copy, PLACE, id, record, (uint32_t)journal_records(f->journal, id) - 1);
}

static inline int on_back(void *ctx, uint32_t place, struct str id, struct str record, bool alone,
                          struct err *e)
{
    if (((struct fixture *)ctx)->full)
        return err_set(e, ERR_STORAGE_FULL, "the disk is full");
    if (alone && !str_eq_c(record, "end"))
        return err_set(e, ERR_IO, "records are missing");
    cr_assert_eq(place, PLACE);
    append_to_journal(ctx, id, record);
    return 0;
}

static inline int on_anew(void *ctx, uint32_t place, struct str id)
{
    struct fixture *f = ctx;

    cr_assert_eq(place, PLACE);
    if (f->in_use)
        return -1;
    journal_drop_session(f->journal, id);
    return 0;
}

static inline void on_read_back(void *ctx, uint32_t place, struct str id, const struct err *e)
{
    struct fixture *f = ctx;

    cr_assert_eq(place, PLACE);
    buf_printf(&f->read, "%.*s%s ", (int)id.len, id.p, e ? "!" : "");
}

static inline bool on_found(void *ctx, uint32_t place, struct str id)
{
    (void)id;
    cr_assert_eq(place, PLACE);
    return !((struct fixture *)ctx)->left_over;
}

static inline int on_mark(void *ctx, struct str id, uint64_t since_ms, uint64_t epoch)
{
    struct fixture *f = ctx;

    cr_assert(since_ms == 77 && epoch == f->store.epoch);
    if (f->unmarkable)
        return -1;
    f->marked++;
    append_to_journal(f, id, STR("mark"));
    return 1;
}

static inline void on_reconnect(void *ctx, const char *why)
{
    struct fixture *f = ctx;

    cr_assert(why);
    f->reconnected++;
}

/* Replays the journal. */
static inline void begin_worker(struct fixture *f)
{
    struct journal_options o = {
        .dir = f->dir, .durability = JOURNAL_PROCESS, .segment_bytes = 1 << 20, .wait_ms = 1000};
    struct err e = {0};

    f->copy = second_copy_new(&(struct second_copy_options){.loop = f->loop,
                                                            .store = &f->store.store,
                                                            .table = f->table,
                                                            .outage_ms = f->outage_ms,
                                                            .read_role = ledger_read_role,
                                                            .add_back = on_back,
                                                            .begin_anew = on_anew,
                                                            .on_read_back = on_read_back,
                                                            .is_needed = on_found,
                                                            .mark = on_mark,
                                                            .reconnect = on_reconnect,
                                                            .ctx = f});
    cr_assert_eq(journal_open(f->loop, &o, on_replayed, f, &f->journal, &e), 0, "%s", e.text);
}

static inline void start_worker(struct fixture *f)
{
    begin_worker(f);
    second_copy_add_place(f->copy, PLACE, f->journal);
}

static inline void end_worker(struct fixture *f)
{
    second_copy_free(f->copy);
    journal_close(f->journal);
}

static inline void own(struct fixture *f, uint64_t epoch)
{
    if (epoch > 0)
        place_table_set_base(f->table, PLACE, epoch); /* the store has not forgotten it */
    cr_assert(place_table_set_own(f->table, PLACE, epoch, 0));
}

static inline struct fixture *open_all(unsigned outage_ms)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    struct err e = {0};

    log_setup("test", LOG_ERROR, LOG_TEXT);
    f->loop = loop_new(&e);
    f->outage_ms = outage_ms;
    f->store =
        (struct memory_store){.store = {&memory_kind}, .loop = f->loop, .epoch = 5, .base = 5};
    f->table = place_table_new();
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/rg-copy-XXXXXX");
    cr_assert(mkdtemp(f->dir));
    own(f, 5);
    start_worker(f);
    return f;
}

static inline void close_all(struct fixture *f)
{
    char command[96];

    end_worker(f);
    for (size_t i = 0; i < LOGS; i++) {
        cut_log(&f->store.logs[i], 0);
        vec_done(&f->store.logs[i].records);
    }
    vec_done(&f->store.answers);
    buf_done(&f->read);
    arena_done(&f->store.arena);
    place_table_free(f->table);
    loop_free(f->loop);
    (void)snprintf(command, sizeof(command), "rm -r %s", f->dir);
    cr_assert_eq(system(command), 0);
    free(f);
}

static inline void wait_until(struct fixture *f, bool (*is_so)(struct fixture *f), const char *what)
{
    uint64_t end = clock_ms() + LIMIT_MS;

    while (!is_so(f)) {
        cr_assert_lt(clock_ms(), end, "%s", what);
        (void)loop_poll(f->loop, 10);
    }
}

static inline void poll_for(struct fixture *f, uint64_t ms)
{
    uint64_t end = clock_ms() + ms;

    while (clock_ms() < end)
        (void)loop_poll(f->loop, 5);
}

static inline bool is_served(struct fixture *f)
{
    struct err e;

    return second_copy_check(f->copy, PLACE, STR("s"), &e) == 0;
}

static inline bool has_ended(struct fixture *f)
{
    return f->stored + f->failed > 0;
}

static inline bool is_read(struct fixture *f)
{
    return second_copy_unread(f->copy) == 0;
}

static inline bool is_level(struct fixture *f)
{
    return second_copy_behind(f->copy) == 0;
}

static inline void on_stored(void *ctx)
{
    ((struct fixture *)ctx)->stored++;
}

static inline void on_failed(void *ctx, const struct err *why)
{
    struct fixture *f = ctx;

    f->failed++;
    f->why = why->kind;
}

static inline bool await(struct fixture *f, const char *id)
{
    return second_copy_await(f->copy, str_cstr(id), (struct copy_done){on_stored, f, on_failed});
}

/* Adds a record and waits for it. */
static inline void add(struct fixture *f, const char *id, const char *record)
{
    f->stored = f->failed = 0;
    append_to_journal(f, str_cstr(id), str_cstr(record));
    cr_assert_not(await(f, id));
}

static inline void add_stored(struct fixture *f, const char *id, const char *record)
{
    add(f, id, record);
    wait_until(f, has_ended, record);
    cr_assert_eq(f->stored, 1, "%d", (int)f->why);
}

/* The log in the store: "0 r0 r1". */
static inline void assert_log(struct fixture *f, const char *id, const char *want)
{
    const struct memory_log *log = find_log(&f->store, str_cstr(id));
    struct buf got = {0};

    buf_printf(&got, "%d", (int)log->first);
    for (size_t i = 0; i < log->records.n; i++)
        buf_printf(&got, " %.*s", (int)log->records.at[i].len, log->records.at[i].p);
    cr_assert(str_eq_c(buf_str(&got), want), "%.*s instead of %s", (int)got.len, got.p, want);
    buf_done(&got);
}

static inline struct fleet_own_place own_place(struct fixture *f)
{
    struct fleet_own_place p = {0};
    size_t at = 0;

    cr_assert(place_table_next_own(f->table, &at, &p));
    return p;
}

static inline bool is_reported_whole(struct fixture *f)
{
    return own_place(f).whole_epoch == f->store.epoch;
}

static inline bool is_reported_fenced(struct fixture *f)
{
    return own_place(f).fenced_epoch != 0;
}

#endif
