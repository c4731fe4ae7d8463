/* The one way to change a session (ledger.h): ledger_write appends the record to the journal of the
 * session's place, applies it, notifies viewers, and only then calls `done`. With durability power
 * the journal reports later that the record is on the disk: the record is applied at once, and
 * `done` (thus the client's answer) waits. An error of the journal leaves the session as it was. */

#include "worker/ledger/ledger.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/journal/journal.h"
#include "common/os/task.h"
#include "common/proc/metrics.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/fragments.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"

static struct journal *journal_of(const struct ledger *l, struct str session_id)
{
    return places_find(l->residency->places, session_id)->journal;
}

void ledger_forget(struct ledger *l, void *ctx)
{
    const struct places *p = l->residency->places;

    for (size_t i = 0; i < p->n; i++)
        journal_forget(p->at[i].journal, ctx);
}

/* Notes lie in the journal of the commits that they speak of: there they come behind them. */
static void write_note_to(struct ledger *l, struct journal *j, uint32_t index)
{
    struct buf note = {0};
    struct err e = {0};

    deliveries_write_note(l->deliveries, index, &note);
    if (note.len > 0 && journal_append(j, STR(JOURNAL_NOTE), buf_str(&note), NULL, NULL, &e) < 0)
        log_warn(NULL, "journal: deliveries were not noted", LOG_T("error", e.text));
    buf_done(&note);
}

void ledger_open_delivery(struct ledger *l, struct str session_id, const uint64_t hash[2],
                          struct str key, uint64_t call)
{
    deliveries_open(l->deliveries, session_id, hash, key, call);
}

/* One note in each place's journal, and the rest in the worker's own. */
void ledger_write_deliveries(struct ledger *l)
{
    const struct places *p = l->residency->places;

    for (size_t i = 0; i < p->n && l->deliveries->notes.len > 0; i++)
        write_note_to(l, p->at[i].journal, p->at[i].index);
    if (p->n > 0 && l->deliveries->notes.len > 0)
        write_note_to(l, p->at[0].journal, UINT32_MAX);
}

bool ledger_free_reserve(struct ledger *l, struct str session_id)
{
    return journal_free_reserve(journal_of(l, session_id));
}

/* Reports whether the session is not visible yet. */
static bool is_hidden(const struct ledger *l, struct str id, bool *ret_there)
{
    bool ended;
    const struct session *s = session_find_any(l->residency->store, id, &ended);

    *ret_there = s != NULL;
    return s && session_copying(s);
}

/* Notifies viewers of a change. A copy that was never complete was never shown, so neither its
 * content nor its end is reported. */
static void notify_changed(const struct ledger *l, struct str id, bool was_hidden)
{
    bool there, hidden = is_hidden(l, id, &there);

    if (!hidden && (there || !was_hidden))
        l->changed(l->changed_ctx, id);
}

void ledger_release_call(struct ledger *l, struct str session_id, uint64_t call)
{
    fragments_drop(l->fragments, journal_of(l, session_id), session_id, call);
}

int ledger_room(const struct ledger *l, struct str session_id, uint64_t more, struct err *e)
{
    uint64_t had =
        l->session_bytes > 0 ? journal_session_bytes(journal_of(l, session_id), session_id) : 0;

    if (l->session_bytes == 0 || had + more <= l->session_bytes)
        return 0;
    (void)err_field(e, "max_session_recorded_bytes",
                    "this session's records take %llu bytes, and this call would add %llu or more: "
                    "at most %llu are kept (--max-session-recorded-bytes)",
                    (unsigned long long)had, (unsigned long long)more,
                    (unsigned long long)l->session_bytes);
    e->kind = ERR_BUDGET;
    return -1;
}

int ledger_write_call(struct ledger *l, struct str session_id, struct str record,
                      struct ledger_done done, struct err *e)
{
    return ledger_room(l, session_id, record.len, e) ? -1
                                                     : ledger_write(l, session_id, record, done, e);
}

void ledger_wait_durable(const struct ledger *l, struct str session_id, struct ledger_done done)
{
    if (journal_await(journal_of(l, session_id), done.fn, done.ctx) > 0)
        done.fn(done.ctx);
}

/* A record that the journal has and that does not apply is a bug: memory would differ from what
 * a replay makes. */
int ledger_write(struct ledger *l, struct str session_id, struct str record,
                 struct ledger_done done, struct err *e)
{
    struct residency *r = l->residency;
    struct journal *j = journal_of(l, session_id);
    struct err applied = {0};
    size_t records;
    bool there, was_hidden = l->changed && is_hidden(l, session_id, &there);
    int rc;

    if (record.len > JOURNAL_RECORD_MAX)
        return err_set(e, ERR_ENGINE_INVALID,
                       "what is to be recorded has %zu bytes; a record has at most %d", record.len,
                       JOURNAL_RECORD_MAX);
    task_atomic(1); /* no other task sees a record that is half applied */
    rc = journal_append(j, session_id, record, done.fn, done.ctx, e);
    if (rc < 0) {
        task_atomic(-1);
        metrics_count(r->page, METRIC_journal_errors, 1);
        if (e->kind == ERR_IO) /* nothing was recorded: the request may be sent again */
            e->kind = ERR_STORAGE_FAILED;
        return -1;
    }
    records = journal_records(j, session_id);
    if (records > 0)
        fragments_add(l->fragments, j, session_id, record, (uint32_t)(records - 1));
    CHECK(session_apply(r->store, record, &applied) == 0);
    if (l->changed)
        notify_changed(l, session_id, was_hidden);
    residency_watch(r);
    if (rc > 0 && done.fn)
        done.fn(done.ctx);
    task_atomic(-1);
    return 0;
}
