/* The one way to change a session (ledger.h): ledger_write appends the record to the journal of the
 * session's place, applies it, notifies viewers, and only then calls `done`. With durability power
 * the journal reports later that the record is on the disk: the record is applied at once, and
 * `done` (thus the client's answer) waits. In a fleet `done` also waits for the store; if that
 * takes too long, `failed` is called instead. An error of the journal leaves the session as it was.
 */

#include "worker/ledger/ledger.h"

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/fleet/second_copy.h"
#include "common/journal/journal.h"
#include "common/os/task.h"
#include "common/proc/metrics.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/fragments.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"

enum { DELIVERIES_MAX = 128 /* records of arrived answers, written at once */ };

static struct journal *journal_of(const struct ledger *l, struct str session_id)
{
    return places_find(l->residency->places, session_id)->journal;
}

void ledger_forget(struct ledger *l, void *ctx)
{
    const struct places *p = l->residency->places;

    for (size_t i = 0; i < p->n; i++)
        journal_forget(p->at[i].journal, ctx);
    if (l->copy)
        second_copy_forget(l->copy, ctx);
}

/* Writes the notes of a place into its journal, where they follow the commits that they name. */
static void write_note_to(struct ledger *l, struct journal *j, uint32_t index)
{
    struct buf note = {0};
    struct err e = {0};

    deliveries_write_note(l->deliveries, index, &note);
    if (note.len > 0 && journal_append(j, STR(JOURNAL_NOTE), buf_str(&note), NULL, NULL, &e) < 0)
        log_warn(NULL, "journal: deliveries were not noted", LOG_T("error", e.text));
    buf_done(&note);
}

void ledger_replay_delivery(struct ledger *l, struct str record)
{
    struct session_request q;
    struct str id;
    struct str briefs;

    if (session_record_commits(record, &id, &q))
        ledger_open_delivery(l, id, q.body_hash, q.key, q.call);
    else if (session_record_delivered(record, &briefs))
        deliveries_replay(l->deliveries, briefs);
}

void ledger_open_delivery(struct ledger *l, struct str session_id, const uint64_t hash[2],
                          struct str key, uint64_t call)
{
    deliveries_open(l->deliveries, session_id, hash, key, call);
}

/* Passes the record to the fragments and the second copy, which count the journal's records. */
static void note_record(struct ledger *l, const struct place_journal *place, struct str session_id,
                        struct str record)
{
    size_t records = journal_records(place->journal, session_id);

    if (records == 0) /* the session has ended */
        return;
    fragments_add(l->fragments, place->journal, session_id, record, (uint32_t)(records - 1));
    if (l->copy)
        second_copy_add(l->copy, place->index, session_id, record, (uint32_t)(records - 1));
}

/* Records that answers have arrived, for the next owner of the place in a fleet. No request waits
 * for the record. If it cannot be written, the next owner may send the recorded answers again. */
static void record_deliveries(void *ctx, struct str session_id, struct str briefs)
{
    struct ledger *l = ctx;
    const struct place_journal *place = places_find(l->residency->places, session_id);
    struct buf record = {0};
    struct err e = {0};
    bool ended;

    if (!session_find_any(l->residency->store, session_id, &ended) ||
        second_copy_check(l->copy, place->index, session_id, &e))
        return;
    session_delivered_record(session_id, briefs, clock_wall_ms(), &record);
    if (journal_append(place->journal, session_id, buf_str(&record), NULL, NULL, &e) < 0) {
        log_warn(NULL, "journal: deliveries were not noted", LOG_T("error", e.text));
    } else {
        note_record(l, place, session_id, buf_str(&record));
        CHECK(session_apply(l->residency->store, buf_str(&record), &e) == 0);
    }
    buf_done(&record);
}

/* Writes a note into each place's journal, and notes of other indexes into the worker's own. */
void ledger_write_deliveries(struct ledger *l)
{
    const struct places *p = l->residency->places;

    deliveries_take_notes(l->deliveries, record_deliveries, l);
    for (size_t i = 0; i < p->n && l->deliveries->notes.len > 0; i++)
        write_note_to(l, p->at[i].journal, p->at[i].index);
    if (p->n > 0 && l->deliveries->notes.len > 0)
        write_note_to(l, p->at[0].journal, UINT32_MAX);
}

/* Many records written by one tick would hold the loop for milliseconds. */
void ledger_close_delivery(struct ledger *l, struct str session_id, const uint64_t hash[2],
                           uint64_t call)
{
    deliveries_close(l->deliveries, session_id, hash, call);
    if (l->deliveries->arrived.n >= DELIVERIES_MAX)
        ledger_write_deliveries(l);
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
    if (l->copy)
        second_copy_release_call(l->copy, session_id, call);
}

void ledger_end_session(struct ledger *l, struct str session_id)
{
    journal_drop_earlier(journal_of(l, session_id), session_id);
    if (l->copy)
        second_copy_end_session(l->copy, session_id);
}

bool ledger_drop_session(struct ledger *l, struct str session_id)
{
    return !l->copy || second_copy_drop_session(l->copy, session_id);
}

bool ledger_is_unread(const struct ledger *l, struct str session_id)
{
    return l->copy && second_copy_is_unread(l->copy, session_id);
}

int ledger_check_all_read(const struct ledger *l, struct err *e)
{
    size_t n = l->copy ? second_copy_unread(l->copy) : 0;

    if (n == 0)
        return 0;
    return err_set(e, ERR_STORAGE_UNAVAILABLE,
                   "%zu sessions are being read from the fleet's store: repeat the request", n);
}

int ledger_check_owner(const struct ledger *l, struct str session_id, struct err *e)
{
    const struct place_journal *place;

    if (!l->copy)
        return 0;
    place = places_find(l->residency->places, session_id);
    return second_copy_check_read(l->copy, place->index, session_id, e);
}

int ledger_check_known(const struct ledger *l, struct str session_id, struct err *e)
{
    if (!l->copy)
        return 0;
    return second_copy_check_known(l->copy, places_find(l->residency->places, session_id)->index,
                                   session_id, e);
}

void ledger_add_replayed(struct ledger *l, uint32_t index, struct str session_id, struct str record,
                         uint32_t number)
{
    second_copy_add(l->copy, index, session_id, record, number);
}

struct copy_role ledger_read_role(struct str record, bool has_fragments)
{
    struct copy_role role = {.version = session_record_version(record)};
    struct session_request commit;
    struct str id;

    if (session_record_fragment(record, &role.call, &role.first)) {
        role.kind = COPY_FRAGMENT;
        role.left_out = session_record_is_rows(record);
    } else if (has_fragments && session_record_commits(record, &id, &commit)) {
        role.kind = COPY_COMMIT;
        role.call = commit.call;
        role.named = commit.has_bulk;
    }
    return role;
}

/* Releases the records, because they cannot be dropped during a replay. */
void ledger_skip_replayed(struct ledger *l, struct journal *j, struct str session_id)
{
    size_t n = journal_records(j, session_id);

    for (size_t i = 0; i < n; i++)
        journal_release(j, session_id, (uint32_t)i);
    second_copy_forget_session(l->copy, session_id);
}

int ledger_begin_anew(struct ledger *l, struct str session_id)
{
    if (!session_forget(l->residency->store, session_id))
        return -1;
    journal_drop_session(journal_of(l, session_id), session_id);
    return 0;
}

/* Checks that nothing is left of a session after its end was applied. */
static int check_end(const struct session *s, struct err *e)
{
    return s ? err_set(e, ERR_IO, "records are missing before the last one") : 0;
}

/* Applies a record that the store had. Skips it if the session has ended and left memory: then it
 * is only needed for the export, which reads the journal. */
static int apply_back(struct session_store *store, struct str session_id, struct str record,
                      struct err *e)
{
    bool ended;
    int rc;

    if (!session_find_any(store, session_id, &ended) && ended && session_is_kept(store, session_id))
        return 0;
    session_store_lazy(store, true);
    rc = session_apply(store, record, e);
    session_store_lazy(store, false);
    return rc;
}

int ledger_add_back(struct ledger *l, struct str session_id, struct str record, bool alone,
                    struct err *e)
{
    const struct place_journal *place = places_find(l->residency->places, session_id);
    struct session_store *store = l->residency->store;
    struct session *s;
    bool ended;
    int rc;

    if (journal_append(place->journal, session_id, record, NULL, NULL, e) < 0) {
        if (e->kind == ERR_IO)
            e->kind = ERR_STORAGE_FAILED;
        return -1;
    }
    note_record(l, place, session_id, record);
    rc = apply_back(store, session_id, record, e);
    s = session_find_any(store, session_id, &ended);
    if (s)
        session_wake(s, clock_wall_ms());
    if (rc || (alone && check_end(s, e)))
        return -1;
    ledger_replay_delivery(l, record);
    residency_watch(l->residency);
    return 0;
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
    if (l->copy &&
        !second_copy_await(l->copy, session_id, (struct copy_done){done.fn, done.ctx, done.failed}))
        return;
    if (journal_await(journal_of(l, session_id), done.fn, done.ctx) > 0)
        done.fn(done.ctx);
}

/* Ends the process if a record that the journal has does not apply: memory would differ from a
 * replay. */
int ledger_write(struct ledger *l, struct str session_id, struct str record,
                 struct ledger_done done, struct err *e)
{
    struct residency *r = l->residency;
    const struct place_journal *place = places_find(r->places, session_id);
    struct journal *j = place->journal;
    struct err applied = {0};
    bool there, was_hidden = l->changed && is_hidden(l, session_id, &there);
    int rc;

    if (record.len > JOURNAL_RECORD_MAX)
        return err_set(e, ERR_ENGINE_INVALID,
                       "what is to be recorded has %zu bytes; a record has at most %d", record.len,
                       JOURNAL_RECORD_MAX);
    if (l->copy && second_copy_check(l->copy, place->index, session_id, e))
        return -1;
    task_atomic(1); /* no other task sees a record that is half applied */
    rc = journal_append(j, session_id, record, l->copy ? NULL : done.fn, done.ctx, e);
    if (rc < 0) {
        task_atomic(-1);
        metrics_count(r->page, METRIC_journal_errors, 1);
        if (e->kind == ERR_IO) /* nothing was recorded: the request may be sent again */
            e->kind = ERR_STORAGE_FAILED;
        return -1;
    }
    note_record(l, place, session_id, record);
    CHECK(session_apply(r->store, record, &applied) == 0);
    if (l->changed)
        notify_changed(l, session_id, was_hidden);
    residency_watch(r);
    if (done.fn && l->copy)
        ledger_wait_durable(l, session_id, done);
    else if (rc > 0 && done.fn)
        done.fn(done.ctx);
    task_atomic(-1);
    return 0;
}

int ledger_mark_doubt(struct ledger *l, struct str session_id, uint64_t since_ms, uint64_t epoch)
{
    uint64_t now_ms = clock_wall_ms(), until_ms = MAX_OF(now_ms, epoch);
    bool ended;
    const struct session *s = session_find(l->residency->store, session_id, &ended);
    struct buf record = {0};
    struct err e = {0};
    int rc;

    if (!s || !session_needs_doubt(s, since_ms, epoch))
        return 0;
    session_doubt_record(session_id, since_ms, until_ms, now_ms, &record);
    rc = ledger_write(l, session_id, buf_str(&record), (struct ledger_done){0}, &e);
    if (rc)
        log_error(&(struct log_scope){.session = session_id},
                  "a session cannot be marked that may lack answers", LOG_T("error", e.text));
    buf_done(&record);
    return rc ? -1 : 1;
}
