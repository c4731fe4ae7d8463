/* Evicts sessions and reads them back. An evicted session keeps its entry: id, phase, times, sums,
 * and its last row. Its records contain everything else, and are applied again when it is needed.
 * The payloads of a session that stays may be evicted alone (payload.c). Both are evicted in one
 * order: by the store's clock at their last use. */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/commit_record.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/remains.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"

bool session_resident(const struct session *s)
{
    return s->residence == RESIDENT;
}

void session_store_lazy(struct session_store *st, bool on)
{
    st->lazy = on;
}

void session_store_evicts(struct session_store *st, bool on)
{
    st->evicts = on;
}

void session_store_source(struct session_store *st, session_source source, void *ctx)
{
    st->source = source;
    st->source_ctx = ctx;
}

void session_wake(struct session *s, uint64_t now_ms)
{
    s->idle_ms = now_ms;
}

void session_store_woken(struct session_store *st, uint64_t now_ms)
{
    struct session *s;

    LIST_EACH(&st->all, s, struct session, item)
        session_wake(s, now_ms);
}

/* --- the order of use --- */

/* Moves the session to the end of the order of use. */
void session_touch(struct session *s)
{
    struct session_store *st = s->store;

    if (s->unlinked || s->residence != RESIDENT || LIST_LAST_OF(&st->lru, struct session, lru) == s)
        return;
    list_remove(&s->lru);
    list_append(&st->lru, &s->lru);
    s->used = ++st->clock;
}

void session_use(struct session *s)
{
    session_touch(s);
    s->used = ++s->store->clock;
}

/* --- sums --- */

/* Returns the bytes of memory that the session uses; tables count with their capacity. */
static uint64_t memory_of(const struct session *s)
{
    const struct forest *f = &s->forest;

    return sizeof(*s) + s->id.len + s->row.len + f->arena.held_bytes + s->payload_bytes +
           s->room_bytes + s->bulk_bytes + map_bytes(&s->bulks) + map_bytes(&f->by_response) +
           map_bytes(&f->by_hash) + map_bytes(&f->by_key) + map_bytes(&f->by_echo) +
           map_bytes(&f->by_call) + map_bytes(&f->by_env) + map_bytes(&s->rewards_by_response) +
           (s->payloads.cap + f->envs.cap + f->nodes.cap + f->checkpoints.cap + f->calls.cap +
            f->buckets_room + s->chains.cap) *
               sizeof(void *) +
           f->by_number.cap * sizeof(uint32_t);
}

/* Changes the store's sums by the difference between the session's old share and the new. */
static void take_share(struct session *s, struct session_share fresh)
{
    struct session_totals *t = s->store->totals;

    t->nodes += fresh.nodes - s->share.nodes;
    t->tokens += fresh.tokens - s->share.tokens;
    t->bytes += fresh.bytes - s->share.bytes;
    t->evicted_bytes += fresh.evicted_bytes - s->counted_evicted;
    s->share = fresh;
    s->counted_evicted = fresh.evicted_bytes;
}

/* Updates the sums after any change. An evicted session keeps its earlier counts. */
void session_account(struct session *s)
{
    struct session_share fresh = s->share;

    fresh.bytes = memory_of(s);
    if (s->residence == RESIDENT) {
        fresh.nodes = s->forest.nodes.n;
        fresh.tokens = s->forest.tokens;
        fresh.evicted_bytes = s->payload_evicted;
    }
    take_share(s, fresh);
    s->store->totals->evicted += (s->residence != RESIDENT) - s->counted_as_evicted;
    s->counted_as_evicted = s->residence != RESIDENT;
}

/* Removes a session that leaves the store from the sums and the orders of use. */
void session_displace(struct session *s)
{
    list_remove(&s->lru);
    payloads_displace(s);
    take_share(s, (struct session_share){0});
    s->store->totals->evicted -= s->counted_as_evicted;
    s->counted_as_evicted = false;
}

/* --- evicting --- */

void session_forget_options(struct session *s)
{
    s->options.sampling = s->options.lock_sampling = s->options.pools = NULL;
    s->options.labels = s->options.metadata = s->options.score = NULL;
    s->options.group = s->options.adapter = s->options.pool = (struct str){0};
    s->options.reseeded_from = (struct str){0};
}

static void drop_row(struct session *s)
{
    free((char *)(uintptr_t)s->row.p);
    s->row = (struct str){0};
}

/* Frees everything that the records contain. */
static void forget_content(struct session *s)
{
    session_free_rewards(s);
    s->reward = (struct reward){0};
    vec_done(&s->chains);
    vec_done(&s->scores);
    session_free_bulks(s);
    session_free_content(s);
    forest_init(&s->forest, s->options.matcher);
    session_forget_options(s);
    s->filled = false;
    s->has_finished = s->finished = false;
    s->complete_reason = s->sink_options = s->budget = s->forked_from = (struct str){0};
    s->head = NULL;
    s->next_seq = s->rollbacks = s->record = s->lost_records = s->copy_left = 0;
    s->exported_ms = 0;
    s->report_bytes = 0;
    s->rollback_dropped = s->trimmed = s->refreshed = 0;
    memset(s->forks, 0, sizeof(s->forks));
}

static bool may_go(const struct session *s)
{
    return list_is_empty(&s->plans) && s->pins == 0;
}

/* Keeps the row, which lists show while the session is evicted. */
static void evict_content(struct session *s)
{
    struct buf row = {0};

    session_write_row(s, &row);
    s->row = str_of(mem_strndup(row.p, row.len), row.len);
    buf_done(&row);
    list_remove(&s->lru);
    s->share.evicted_bytes = s->share.bytes + s->payload_evicted;
    forget_content(s);
    s->residence = EVICTED;
    s->store->totals->evictions++;
    session_account(s);
}

void session_rest(struct session *s)
{
    if (s->store->evicts && s->residence == RESIDENT && may_go(s))
        evict_content(s);
}

/* Returns the first session from `s` (or NULL) on, in the order of use, that may be evicted. */
static struct session *first_idle(struct session *s)
{
    while (s && !may_go(s))
        s = LIST_NEXT_OF(&s->store->lru, s, struct session, lru);
    return s;
}

/* Drops payloads and sessions, least recently used first, until at most `bytes` are held or max
 * were dropped. Sessions that are pinned or have running calls stay. Returns how many were
 * dropped. */
size_t session_evict(struct session_store *st, uint64_t bytes, size_t max)
{
    struct session *s = NULL;
    size_t n = 0;

    if (st->evicts)
        s = first_idle(LIST_FIRST_OF(&st->lru, struct session, lru));
    for (; st->evicts && n < max && st->totals->bytes > bytes; n++) {
        struct payload *p = LIST_FIRST_OF(&st->payload_lru, struct payload, lru);

        if (p && (!s || p->used < s->used)) {
            payload_evict(p);
        } else if (s) {
            struct session *next = first_idle(LIST_NEXT_OF(&st->lru, s, struct session, lru));

            evict_content(s);
            s = next;
        } else {
            break;
        }
    }
    return n;
}

uint64_t session_evictable(const struct session *s)
{
    return s->store->evicts && list_is_empty(&s->plans) && s->pins <= 1 ? s->share.bytes : 0;
}

struct str session_kept_row(const struct session *s)
{
    return s->row;
}

static uint64_t label_bit(struct str name)
{
    return UINT64_C(1) << (str_hash(name, 0) & 63);
}

/* Labels are known from the session's first record on, whether or not its content is in memory. */
void session_note_labels(struct session *s, const struct json *labels)
{
    s->label_names = 0;
    for (uint32_t i = 0; json_is(labels, JSON_OBJECT) && i < labels->n; i++)
        s->label_names |= label_bit(json_string(&labels->members[i].key));
}

bool session_may_have_label(const struct session *s, struct str name)
{
    return (s->label_names & label_bit(name)) != 0;
}

bool session_past_may_have_label(const struct session_past *p, struct str name)
{
    return (p->label_names & label_bit(name)) != 0;
}

/* --- reading back --- */

/* Makes an evicted entry of an ended session again whose entry was freed, if it may still be
 * exported. Returns NULL if it is not kept any more. */
struct session *session_revive(struct session_store *st, struct str id, uint64_t now_ms)
{
    const struct tombstone *t = map_get(&st->tombstones, id);
    struct session *s;

    if (!t || !t->exportable || map_get(&st->sessions, id) ||
        t->at_ms + st->defaults.export_retention_ms <= now_ms)
        return NULL;
    s = session_new(st, id, now_ms);
    session_set_phase(s, SESSION_FINALIZED);
    s->read_ms = now_ms;
    s->label_names = UINT64_MAX;
    s->updated_ms = 0; /* the records contain the time */
    session_account(s);
    return s;
}

void session_load_begin(struct session *s)
{
    CHECK(s->residence == EVICTED);
    s->residence = LOADING;
    s->kept_ms = s->updated_ms;
    s->pins++;
}

void session_load_at(struct session *s, size_t record)
{
    s->record = (uint32_t)record;
    s->absorbs = false;
}

void session_load_absorb(struct session *s)
{
    s->absorbs = true;
}

bool session_filled(const struct session *s)
{
    return s->filled;
}

bool session_unlinked(const struct session *s)
{
    return s->unlinked;
}

/* `whole`: all of its records were applied. Otherwise the session is evicted again. Returns -1 if
 * it is not in memory. */
int session_load_end(struct session *s, bool whole, uint64_t now_ms)
{
    bool there = whole && s->filled;

    s->absorbs = false;
    if (s->copying == 0) /* fragments of calls that were never recorded */
        session_free_bulks(s);
    if (there) {
        drop_row(s);
        s->residence = RESIDENT;
        s->updated_ms = MAX_OF(s->updated_ms, s->kept_ms);
        s->read_ms = now_ms;
    } else {
        forget_content(s);
        s->residence = EVICTED;
        s->updated_ms = s->kept_ms;
    }
    if (!s->unlinked)
        session_account(s);
    session_touch(s);
    if (!s->options.policy) /* no records were found for the new entry */
        session_unlink(s);
    session_unpin(s->store, s);
    return there ? 0 : -1;
}

/* --- records that are applied meanwhile --- */

/* Applies the end of a session that is not completely in memory. */
static int absorb_end(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e)
{
    uint64_t how = record_u(r);

    if (r->bad || how > SESSION_END_HOLD)
        return err_set(e, ERR_IO, "session record: torn end");
    if (how != SESSION_END_COMPLETE)
        session_finish(s, (enum session_end)how, now_ms);
    else if (!session_has_ended(s))
        session_complete(s, now_ms);
    return 0;
}

/* Applies a record of a session that is not in memory: updates only its entry, times and sums; the
 * rest is applied when the session is read back. */
int session_absorb(struct session *s, uint64_t type, struct record_in *r, uint64_t now_ms,
                   struct err *e)
{
    struct commit_record c;

    if (record_is_fragment(type) ||
        type == RECORD_DELIVERED) /* changes nothing, or at its commit */
        return 0;
    drop_row(s);
    if (type != RECORD_EXPORTED && (type != RECORD_LOGPROBS || !session_has_ended(s)))
        /* kept, so that they are right even if reading back fails */
        s->updated_ms = s->kept_ms = now_ms;
    if (type == RECORD_END)
        return absorb_end(s, r, now_ms, e);
    if (type == RECORD_SINK)
        return session_apply_sink(s, r, e);
    if (type == RECORD_DOUBT)
        return session_apply_doubt(s, r, e);
    if (type != RECORD_COMMIT)
        return 0;
    if (commit_record_read(r, &c, e) != 0)
        return -1;
    s->idle_ms = now_ms;
    if (s->next_call <= c.call)
        s->next_call = c.call + 1;
    s->share.tokens += c.tokens;
    s->store->totals->tokens += c.tokens;
    return 0;
}
