/*
 * The dispatcher's journal: opening, replay, maintenance, and the only way to change the book. A
 * change is appended to the journal, applied, and announced to followers. A group's records stay in
 * the journal while the book has the group or the group owes sessions to sinks (`owed`).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"

enum { JOURNAL_WAIT_MS = 5000 /* wait for the lock of a dispatcher that is being replaced */ };

/* Number of things that a group owes to sinks: sessions (closings.c) and its entry (tellings.c).
 * Its records are kept until it is 0. */
struct debt {
    size_t n;
    size_t len;
    char group[];
};

void desk_owe(struct desk *d, struct str group)
{
    struct debt *debt = map_get(&d->owed, group);

    if (!debt) {
        debt = mem_zalloc(sizeof(*debt) + group.len);
        debt->len = group.len;
        memcpy(debt->group, group.p, group.len);
        (void)map_set(&d->owed, str_of(debt->group, debt->len), debt);
    }
    debt->n++;
}

void desk_paid(struct desk *d, struct str group)
{
    struct debt *debt = map_get(&d->owed, group);

    if (debt && --debt->n == 0)
        free(map_take(&d->owed, group));
}

bool desk_needs_group(const struct desk *d, struct str id)
{
    return book_group(&d->book, id) || book_gone_group(&d->book, id) || map_get(&d->owed, id);
}

/* Reports whether the journal must keep the group's records. In a fleet they leave the store first:
 * what only the store has would be read back. */
static bool must_keep(void *ctx, struct str id)
{
    struct desk *d = ctx;

    return desk_needs_group(d, id) || (d->copy && !desk_copy_drop(d, id));
}

int desk_await(struct desk *d, const struct desk_done *done)
{
    return d->copy ? desk_copy_await(d, (struct str){0}, done)
                   : journal_await(d->journal, done->fn, done->ctx);
}

void desk_forget(struct desk *d, void *ctx)
{
    if (d->copy)
        desk_copy_forget(d, ctx);
    else
        journal_forget(d->journal, ctx);
}

void desk_record_group(struct desk *d, struct str group, struct str submission, struct buf *out)
{
    struct record_begin begin = {0};

    if (d->copy)
        begin = (struct record_begin){d->book.next_seq, desk_copy_begin_group(d, group)};
    record_group(group, submission, begin, clock_wall_ms(), out);
}

/* Appends the record. Returns like desk_write. In a fleet its wait begins here, so that an order
 * that the record starts waits for it. */
static int append_record(struct desk *d, struct str group, struct str record,
                         const struct desk_done *done, struct err *e)
{
    int rc;

    if (!d->copy)
        return journal_append(d->journal, group, record, done ? done->fn : NULL,
                              done ? done->ctx : NULL, e);
    if (desk_copy_check_write(d, group, e))
        return -1;
    rc = journal_append(d->journal, group, record, NULL, NULL, e);
    if (rc < 0)
        return -1;
    desk_copy_add(d, group, record);
    return desk_copy_await(d, group, done);
}

int desk_write(struct desk *d, struct str group, struct str record, const struct desk_done *done,
               struct err *e)
{
    char id[GROUP_ID_MAX + 1] = "";
    struct err bad;
    int rc;

    memcpy(id, group.p, group.len); /* applying the record may remove the group */
    rc = append_record(d, group, record, done, e);
    if (rc < 0)
        return -1;
    desk_events_changed(d, str_cstr(id));
    if (book_apply(&d->book, record, &bad)) /* a bug: a record that was just written does not fit */
        log_error(NULL, "a record does not apply", LOG_T("group", id), LOG_T("error", bad.text));
    if (!must_keep(d, str_cstr(id)))
        journal_drop_session(d->journal, str_cstr(id));
    desk_events_changed(d, str_cstr(id)); /* the record may have added the group */
    return rc;
}

void desk_put_unreachable(const struct desk *d, struct json_out *o)
{
    heritage_put_unreachable(d->heritage, o);
}

int desk_apply_replayed(void *ctx, struct str id, struct str payload, struct err *e)
{
    struct desk *d = ctx;
    struct err bad;

    if (book_apply(&d->book, payload, &bad) == 0)
        return 0;
    if (bad.kind == ERR_UNSUPPORTED) { /* a newer program's record must not be dropped */
        *e = bad;
        return -1;
    }
    log_warn(NULL, "journal: record does not apply", LOG_S("group", id), LOG_T("error", bad.text));
    return 0;
}

static int keep_replayed(void *ctx, struct str id, struct str payload, struct err *e)
{
    (void)e;
    desk_copy_replay(ctx, id, payload);
    return 0;
}

int desk_open_journal(struct desk *d, struct err *e)
{
    static const enum journal_durability levels[] = {
        [DURABILITY_NONE] = JOURNAL_NONE,
        [DURABILITY_PROCESS] = JOURNAL_PROCESS,
        [DURABILITY_POWER] = JOURNAL_POWER,
    };
    const struct heritage *h = d->heritage;
    char dir[4096];
    struct journal_options o = {.dir = dir,
                                .durability = levels[h->config->durability],
                                .segment_bytes = (uint64_t)h->config->journal_segment_bytes,
                                .wait_ms = JOURNAL_WAIT_MS,
                                .in_order = true,
                                .metrics = h->page};
    uint64_t start_ms = clock_ms();
    int n = snprintf(dir, sizeof(dir), "%s/dispatcher", h->state_dir);

    if (n < 0 || (size_t)n >= sizeof(dir))
        return err_set(e, ERR_CONFIG, "the state folder's path is too long");
    if (journal_open(d->loop, &o, d->copy ? keep_replayed : desk_apply_replayed, d, &d->journal,
                     e) ||
        (d->copy && desk_copy_apply(d, e)))
        return -1;
    if (d->copy) /* before they are compared with the store's */
        (void)journal_drop_absent(d->journal, must_keep, d);
    if (d->book.next_seq > 1)
        log_info(NULL, "groups replayed", LOG_U("groups", d->book.groups.n),
                 LOG_U("ms", clock_ms() - start_ms));
    return 0;
}

static void publish_size(const struct desk *d)
{
    struct journal_stats s;

    journal_stats(d->journal, &s);
    metrics_set(d->heritage->page, METRIC_dispatcher_journal, s.disk_bytes);
}

/* Runs one step of the compaction in every loop iteration, until it is done. A whole segment at
 * once would delay claims and renewals. After a failure, the next maintenance tries again. */
static void on_compact(struct loop_task *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, compact);
    struct err e = {0};
    int rc = journal_compact(d->journal, false, &e);

    if (rc > 0) {
        loop_task_post(d->loop, t, on_compact);
        return;
    }
    if (rc < 0)
        log_warn(NULL, "journal: compaction failed", LOG_T("error", e.text));
    publish_size(d);
}

void desk_maintain_journal(struct desk *d)
{
    struct statvfs v;

    d->disk_low =
        statvfs(d->heritage->state_dir, &v) == 0 &&
        (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)d->heritage->config->journal_min_free;
    (void)journal_drop_absent(d->journal, must_keep, d);
    loop_task_post(d->loop, &d->compact, on_compact);
    publish_size(d);
}
