/*
 * A journal is a folder with a manifest, which names segments in order (files.h), and segments of
 * checked records (segment.h). Records are appended to the last segment. When it is full, a new one
 * follows. Dropped sessions and released records leave dead bytes. A closed segment that is mostly
 * dead is rewritten without them, under a new number at the same position. A segment with only dead
 * records is removed.
 */
#include "common/journal/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/compaction.h"
#include "common/journal/files.h"
#include "common/journal/journal_internal.h"
#include "common/journal/segment.h"
#include "common/journal/syncer.h"
#include "common/proc/metrics.h"

enum {
    WASTED_BYTES = 256 << 10
}; /* a mostly dead last segment of this size is closed, to be rewritten */

/* Bytes of the disk that are reserved for operations that free disk space: ends of sessions, a
 * manifest, a rewritten segment. */
enum { RESERVE_BYTES = 32 << 10 };

static uint32_t last_number(const struct journal *j)
{
    return j->live.at[j->live.n - 1].number;
}

/* Ends the process after a failed fsync: the kernel may have dropped the bytes, so only a restart
 * from the readable data keeps the promise. Returns an error instead if no syncer runs (at a start,
 * or in a tool); the process ends because of it, too. */
static int sync_failed(struct journal *j, int failed, struct err *e)
{
    log_error(NULL, "journal: fsync failed", LOG_I("errno", failed));
    CHECK(!j->syncer || !"journal fsync failed");
    j->unsure = true;
    errno = failed;
    return err_sys(e, ERR_IO, "the journal cannot be synced");
}

/* Writes the names of the folder's files to disk if the journal syncs. */
static int sync_folder(struct journal *j, struct err *e)
{
    return j->syncs && fsync(j->dirfd) ? sync_failed(j, errno, e) : 0;
}

/* Writes the manifest from the list of segments in memory. On -1 the old manifest remains. If
 * `unsure` is set, either manifest may remain, so the segments of both must stay. */
static int write_manifest(struct journal *j, struct err *e)
{
    struct numbers v = {0};
    int rc;

    for (size_t i = 0; i < j->live.n; i++)
        *vec_push(&v) = j->live.at[i].number;
    rc = files_write_manifest(j->dirfd, v.at, v.n, j->syncs, e);
    vec_done(&v);
    return rc ? -1 : sync_folder(j, e);
}

/* --- opening --- */

struct replay {
    journal_replay_fn fn;
    void *ctx;
};

/* Returns the id of the session that needs the record. Empty for notes, which no session needs. */
static struct str keeping_session(struct str id)
{
    if (str_eq_c(id, JOURNAL_NOTE))
        id = (struct str){0};
    return id;
}

static struct record_place make_place(uint32_t number, uint64_t offset, size_t size)
{
    return (struct record_place){.number = number, .offset = offset, .size = (uint32_t)size};
}

/* A segment while it is replayed. */
struct opened {
    uint32_t number;
    int fd;
    bool last;
    size_t size, good; /* size of the file; end of its last whole record, in bytes */
    size_t damaged;    /* number of bytes before `good` that are not records */
};

/* Passes every whole record to the owner and stores its position. */
static int replay_segment(struct journal *j, struct opened *o, struct str bytes,
                          const struct replay *r, struct err *e)
{
    struct segment_reader in;
    struct journal_record rec;

    if (segment_reader_init(&in, bytes, o->number, e))
        return -1;
    while (segment_reader_next(&in, &rec) == 1) {
        if (r->fn && r->fn(r->ctx, rec.id, rec.payload, e))
            return -1;
        liveness_add(&j->live, make_place(o->number, in.at - rec.size, rec.size),
                     keeping_session(rec.id));
        j->stats.replayed++;
    }
    o->size = bytes.len;
    o->good = in.at;
    o->damaged = in.damaged;
    return 0;
}

/* Cuts a torn tail of the last segment. Other damage is logged and left as it is. */
static int mend_tail(struct journal *j, const struct opened *o, struct err *e)
{
    unsigned char head[SEGMENT_HEAD];
    struct iovec part = {head, sizeof(head)};

    bool empty = !o->last && o->size < SEGMENT_HEAD; /* each segment has at least its head */

    if (o->damaged > 0 || (!o->last && o->good < o->size) || empty) {
        j->stats.lost_bytes += o->damaged + (o->last ? 0 : o->size - o->good);
        log_error(NULL, empty ? "journal: empty segment" : "journal: damaged segment",
                  LOG_U("segment", o->number), LOG_U("damaged_bytes", j->stats.lost_bytes));
    }
    if (!o->last || (o->good == o->size && o->good > 0))
        return 0;
    j->stats.repairs++;
    j->stats.lost_bytes += o->size - o->good;
    log_warn(NULL, "journal: torn tail cut off", LOG_U("segment", o->number),
             LOG_U("kept_bytes", o->good), LOG_U("lost_bytes", o->size - o->good));
    if (ftruncate(o->fd, (off_t)o->good))
        return err_sys(e, ERR_IO, "cannot cut the journal's torn tail");
    if (o->good > 0)
        return 0;
    segment_head(o->number, head);
    return files_append(o->fd, &part, 1, e);
}

/* Replays a segment. The last one stays open for appending. */
static int open_segment(struct journal *j, uint32_t number, bool last, const struct replay *r,
                        struct err *e)
{
    struct opened o = {.number = number, .last = last};
    struct str bytes = {0};
    int rc = -1;

    o.fd = files_open_segment(j->dirfd, number, last, e);
    if (o.fd < 0)
        return -1;
    liveness_segment(&j->live, number);
    if (files_map(o.fd, true, &bytes, e) || replay_segment(j, &o, bytes, r, e) ||
        mend_tail(j, &o, e))
        goto out;
    if (last) {
        j->fd = o.fd;
        j->length = MAX_OF(o.good, SEGMENT_HEAD);
        o.fd = -1;
    }
    rc = 0;
out:
    files_unmap(bytes);
    if (o.fd >= 0)
        (void)close(o.fd);
    return rc;
}

/* Syncs the last segment. Also called before a record is removed from the disk, because the record
 * that made it dead may be in the last segment. */
static int sync_last(struct journal *j, struct err *e)
{
    bool all = j->syncer && j->synced == j->asked;

    if (j->syncs && !all && j->fd >= 0 && fdatasync(j->fd))
        return sync_failed(j, errno, e);
    return 0;
}

/* Starts a new last segment. */
static int start_segment(struct journal *j, struct err *e)
{
    uint32_t number = j->next_number++;
    int fd;

    if (sync_last(j, e))
        return -1;
    fd = files_create_segment(j->dirfd, number, e);
    if (fd < 0)
        return -1;
    liveness_segment(&j->live, number);
    if (write_manifest(j, e)) {
        liveness_remove(&j->live, number);
        (void)close(fd);
        if (!j->unsure)
            files_remove_segment(j->dirfd, number);
        return -1;
    }
    if (j->fd >= 0)
        (void)close(j->fd);
    j->fd = fd;
    j->length = SEGMENT_HEAD;
    return 0;
}

/* Replays all segments in order. A journal without segments gets its first one. Afterwards removes
 * files that the manifest does not name: then all named files exist and the manifest is on disk.
 * After a failed fsync, a power cut could restore the previous manifest. */
static int replay_all(struct journal *j, const struct replay *r, struct err *e)
{
    struct numbers v = {0};
    bool older = false;
    int rc = files_check_manifest(j->dirfd, e);

    if (rc == 0)
        rc = files_read_manifest(j->dirfd, &v, &older, e);

    for (size_t i = 0; i < v.n && rc == 0; i++) {
        j->next_number = MAX_OF(j->next_number, v.at[i] + 1);
        rc = open_segment(j, v.at[i], i + 1 == v.n, r, e);
    }
    if (rc == 0)
        rc = sync_folder(j, e);
    if (rc == 0)
        files_remove_strays(j->dirfd, v.at, v.n);
    if (rc == 0 && v.n == 0)
        rc = start_segment(j, e);
    else if (rc == 0 && older)
        rc = write_manifest(j, e);
    vec_done(&v);
    return rc;
}

static void on_synced(void *ctx, uint64_t ticket, int failed, uint64_t took_us);
static void stop_compaction(struct journal *j);
static int begin_compaction(struct journal *j, uint32_t number, struct err *e);
static int continue_compaction(struct journal *j, struct err *e);

/* Reports whether a segment is being copied, or the positions of its records are being updated. */
static bool is_compacting(const struct journal *j)
{
    return j->compaction || liveness_is_moving(&j->live);
}

/* Rewrites the last segment at a start with JOURNAL_POWER. Its replayed bytes may only be in the
 * kernel's memory, and if an fsync has failed before, no later fsync would write them. */
static int renew_last(struct journal *j, struct err *e)
{
    uint32_t number = j->next_number;
    int rc = begin_compaction(j, last_number(j), e);

    while (rc == 0 && is_compacting(j))
        rc = continue_compaction(j, e) < 0 ? -1 : 0;
    if (rc)
        return -1;
    (void)close(j->fd);
    j->fd = files_open_segment(j->dirfd, number, true, e);
    j->length = SEGMENT_HEAD + liveness_bytes(&j->live, number);
    return j->fd < 0 ? -1 : 0;
}

int journal_open(struct loop *loop, const struct journal_options *o, journal_replay_fn replay,
                 void *ctx, struct journal **ret, struct err *e)
{
    struct journal *j = mem_zalloc(sizeof(*j));
    struct replay r = {replay, ctx};

    j->metrics = o->metrics;
    j->durability = o->durability;
    j->syncs = o->syncs || o->durability == JOURNAL_POWER;
    j->segment_bytes = o->segment_bytes > 0 ? o->segment_bytes : 64u << 20;
    j->in_order = o->in_order;
    j->last_word = o->last_word;
    j->dirfd = -1;
    j->fd = -1;
    j->read_fd = -1;
    j->next_number = 1;
    *ret = j;
    if (o->durability == JOURNAL_NONE)
        return 0;
    j->dirfd = files_open_dir(o->dir, e);
    if (j->dirfd < 0 || files_lock(j->dirfd, o->wait_ms, e) || replay_all(j, &r, e))
        goto out;
    if (o->durability == JOURNAL_POWER &&
        (renew_last(j, e) || syncer_new(loop, on_synced, j, &j->syncer, e)))
        goto out;
    return 0;
out:
    journal_close(j);
    *ret = NULL;
    return -1;
}

void journal_resize(struct journal *j, uint64_t segment_bytes)
{
    j->segment_bytes = segment_bytes;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    syncer_free(j->syncer);
    stop_compaction(j);
    if (j->read_fd >= 0)
        (void)close(j->read_fd);
    if (j->fd >= 0) {
        if (j->syncs)
            (void)fdatasync(j->fd);
        (void)close(j->fd);
    }
    if (j->dirfd >= 0)
        (void)close(j->dirfd);
    liveness_done(&j->live);
    vec_done(&j->waiting);
    free(j);
}

/* --- appending --- */

static void keep_reserve(struct journal *j)
{
    if (j->durability != JOURNAL_NONE && !j->reserved)
        j->reserved = files_make_reserve(j->dirfd, RESERVE_BYTES) == 0;
}

bool journal_free_reserve(struct journal *j)
{
    if (!j->reserved)
        return false;
    log_warn(NULL, "journal: the disk is full, sessions that end take the reserve",
             LOG_U("bytes", RESERVE_BYTES));
    j->reserved = false;
    files_free_reserve(j->dirfd);
    return true;
}

/* Calls `durable` of all waiters up to the ticket, in order. */
static void on_synced(void *ctx, uint64_t ticket, int failed, uint64_t took_us)
{
    struct journal *j = ctx;
    struct err e;

    if (j->metrics)
        metrics_observe_us(j->metrics, METRIC_journal_fsync, took_us);
    if (failed) {
        (void)sync_failed(j, failed, &e); /* ends the process: its syncer runs */
        return;
    }
    j->synced = ticket;
    while (j->told < j->waiting.n && j->waiting.at[j->told].ticket <= ticket) {
        struct journal_waiter w = j->waiting.at[j->told++];

        if (w.durable)
            w.durable(w.ctx); /* the callback may append, await, or forget others */
    }
    j->waiting.n -= j->told;
    if (j->told > 0 && j->waiting.n > 0)
        memmove(j->waiting.at, j->waiting.at + j->told, j->waiting.n * sizeof(*j->waiting.at));
    j->told = 0;
}

/* Appends one whole record to the last segment, or nothing. */
static int write_last_record(struct journal *j, struct str id, struct str payload, struct err *e)
{
    unsigned char head[RECORD_HEAD];
    struct iovec parts[3] = {
        {head, sizeof(head)},
        {(void *)(uintptr_t)id.p, id.len},
        {(void *)(uintptr_t)payload.p, payload.len},
    };
    uint64_t size = RECORD_HEAD + id.len + payload.len;

    if (j->broken || j->unsure)
        return err_set(e, ERR_IO, "the journal is broken");
    if (j->length > SEGMENT_HEAD && j->length + size > j->segment_bytes && start_segment(j, e))
        return -1;
    segment_record_head(id, payload, head);
    if (files_append(j->fd, parts, 3, e)) {
        j->broken = ftruncate(j->fd, (off_t)j->length) != 0;
        return -1;
    }
    liveness_add(&j->live, make_place(last_number(j), j->length, size), keeping_session(id));
    j->length += size;
    j->stats.records++;
    j->stats.bytes += size;
    return 0;
}

int journal_append(struct journal *j, struct str session_id, struct str payload,
                   void (*durable)(void *ctx), void *ctx, struct err *e)
{
    if (j->durability != JOURNAL_NONE && write_last_record(j, session_id, payload, e))
        return -1;
    if (j->durability == JOURNAL_POWER) {
        j->asked = syncer_ask(j->syncer, j->fd);
        if (durable)
            *vec_push(&j->waiting) = (struct journal_waiter){j->asked, durable, ctx};
        return 0;
    }
    return 1;
}

int journal_await(struct journal *j, void (*durable)(void *ctx), void *ctx)
{
    if (j->synced == j->asked) /* without syncer both are 0 */
        return 1;
    *vec_push(&j->waiting) = (struct journal_waiter){j->asked, durable, ctx};
    return 0;
}

/* The waiters stay in the list, without their callback. */
void journal_forget(struct journal *j, void *ctx)
{
    for (size_t i = j->told; i < j->waiting.n; i++)
        if (j->waiting.at[i].ctx == ctx)
            j->waiting.at[i].durable = NULL;
}

/* --- compaction --- */

void journal_drop_session(struct journal *j, struct str session_id)
{
    liveness_drop(&j->live, session_id);
}

void journal_drop_earlier(struct journal *j, struct str session_id)
{
    liveness_drop_earlier(&j->live, session_id);
}

size_t journal_records(const struct journal *j, struct str session_id)
{
    return liveness_records(&j->live, session_id);
}

uint64_t journal_session_bytes(const struct journal *j, struct str session_id)
{
    return liveness_session_bytes(&j->live, session_id);
}

void journal_release(struct journal *j, struct str session_id, uint32_t record)
{
    liveness_release(&j->live, session_id, record);
}

/* Appends the last word of a session. Returns false if it cannot be written. */
static bool append_last_word(struct journal *j, struct str id)
{
    struct buf payload = {0};
    struct err e = {0};
    int rc;

    CHECK(j->last_word);
    j->last_word(id, &payload);
    rc = journal_append(j, id, buf_str(&payload), NULL, NULL, &e);
    if (rc < 0 && e.kind == ERR_STORAGE_FULL && journal_free_reserve(j))
        rc = journal_append(j, id, buf_str(&payload), NULL, NULL, &e);
    buf_done(&payload);
    if (rc < 0) {
        log_warn(&(struct log_scope){.session = id}, "journal: an ended session is kept",
                 LOG_T("error", e.text));
        return false;
    }
    liveness_drop_earlier(&j->live, id);
    return true;
}

/* Drops a session that is no longer needed. *words: number of last words that may still be written.
 * Returns false if the session must wait. */
static bool drop_absent(struct journal *j, struct str id, unsigned *words)
{
    bool over = liveness_is_over(&j->live, id);

    if (!over && (!j->last_word || !liveness_is_spread(&j->live, id))) {
        liveness_drop(&j->live, id);
        return true;
    }
    if (!over) {
        if (*words == 0)
            return false;
        *words = append_last_word(j, id) ? *words - 1 : 0;
    }
    return liveness_release_last(&j->live, id);
}

/* Dropping changes the table, so the sessions of a step are collected first. */
bool journal_drop_batch(struct journal *j, struct journal_look *l,
                        bool (*needed)(void *ctx, struct str session_id), void *ctx, size_t places)
{
    struct {
        struct str *at;
        size_t n, cap;
    } gone = {0};

    unsigned words = JOURNAL_LAST_WORDS - l->words;
    size_t end = places < SIZE_MAX - l->at ? l->at + places : SIZE_MAX;
    struct map_slot *slot;

    while ((slot = map_next_before(&j->live.sessions, &l->at, end)) != NULL) {
        if (!needed(ctx, map_slot_key(slot)))
            *vec_push(&gone) = map_slot_key(slot);
    }
    for (size_t i = 0; i < gone.n; i++)
        l->dropped += drop_absent(j, gone.at[i], &words);
    vec_done(&gone);
    l->words = JOURNAL_LAST_WORDS - words;
    return l->at < map_places(&j->live.sessions);
}

size_t journal_drop_absent(struct journal *j, bool (*needed)(void *ctx, struct str session_id),
                           void *ctx)
{
    struct journal_look l = {0};

    (void)journal_drop_batch(j, &l, needed, ctx, SIZE_MAX);
    return l.dropped;
}

/* Removes the file of a segment. Closes its descriptor if it was read last. */
static void forget_segment(struct journal *j, uint32_t number)
{
    if (j->read_fd >= 0 && j->read_number == number) {
        (void)close(j->read_fd);
        j->read_fd = -1;
    }
    files_remove_segment(j->dirfd, number);
}

/* Removes a segment without needed records. */
static int remove_dead(struct journal *j, size_t i, struct err *e)
{
    struct live_segment gone = j->live.at[i];

    if (sync_last(j, e))
        return -1;
    files_empty_segment(j->dirfd, gone.number); /* the new manifest may need the space */
    liveness_remove(&j->live, gone.number);
    gone.total_bytes = 0;
    if (write_manifest(j, e)) {
        liveness_insert(&j->live, i, gone);
        return -1;
    }
    liveness_left(&j->live, gone.number);
    forget_segment(j, gone.number);
    return 0;
}

/* Abandons the compaction. Removes its new file, unless the manifest may name that file. */
static void stop_compaction(struct journal *j)
{
    if (!j->compaction)
        return;
    if (!j->unsure)
        files_remove_segment(j->dirfd, compaction_number(j->compaction));
    compaction_free(j->compaction);
    j->compaction = NULL;
}

/* Replaces the old segment with the new one, when all is copied. */
static int swap_segments(struct journal *j, struct err *e)
{
    struct compaction *c = j->compaction;
    uint32_t old = compaction_old(c), number = compaction_number(c);
    uint64_t bytes = liveness_bytes(&j->live, old);
    struct moved *m;
    size_t n;

    if (sync_last(j, e))
        return -1;
    liveness_renumber(&j->live, old, number, compaction_bytes(c));
    if (write_manifest(j, e)) {
        liveness_renumber(&j->live, number, old, bytes);
        return -1;
    }
    m = compaction_detach_moved(c, &n);
    liveness_moved(&j->live, old, number, m, n);
    compaction_free(c);
    j->compaction = NULL;
    forget_segment(j, old);
    return 0;
}

/* Starts the compaction of a segment. */
static int begin_compaction(struct journal *j, uint32_t number, struct err *e)
{
    uint32_t fresh = j->next_number++;

    liveness_copying(&j->live, number, fresh);
    return compaction_new(j->dirfd, number, fresh, &j->compaction, e);
}

/* Runs one step of the compaction. Returns 1, or -1 after it has abandoned the compaction. */
static int continue_compaction(struct journal *j, struct err *e)
{
    int rc;

    if (liveness_is_moving(&j->live)) {
        liveness_move_on(&j->live);
        return 1;
    }
    rc = compaction_step(j->compaction, &j->live, j->syncs, e);
    if (rc == 0 || (rc == 1 && swap_segments(j, e) == 0))
        return 1;
    stop_compaction(j);
    return -1;
}

/* Reports whether the last segment is mostly dead and long enough to be closed for that. */
static bool is_last_wasted(const struct journal *j)
{
    const struct live_segment *s = j->live.n > 0 ? &j->live.at[j->live.n - 1] : NULL;

    return s && s->total_bytes >= WASTED_BYTES &&
           s->live_bytes + s->note_bytes < s->total_bytes / 2;
}

static uint64_t dead_bytes(const struct live_segment *s)
{
    return s->total_bytes - s->live_bytes - s->note_bytes;
}

/* Reports whether a segment should be rewritten. With in_order, a segment that is mostly needed is
 * rewritten, too, as soon as all segments together have as many dead bytes as its size. */
static bool is_to_rewrite(const struct journal *j, const struct live_segment *s, bool thorough)
{
    uint64_t dead = dead_bytes(s), all = 0;

    if (dead > s->total_bytes / 2 || (thorough && dead > 0))
        return true;
    if (!j->in_order || dead == 0)
        return false;
    for (size_t i = 0; i < j->live.n; i++)
        all += dead_bytes(&j->live.at[i]);
    return all >= s->total_bytes;
}

/* Runs one step of compaction. Returns 1 if more may remain, 0 if there is nothing to do, or -1. */
static int compact_step(struct journal *j, bool thorough, struct err *e)
{
    if (j->unsure)
        return err_set(e, ERR_IO, "the journal is broken");
    if (is_compacting(j))
        return continue_compaction(j, e);
    for (size_t i = 0; i + 1 < j->live.n; i++) {
        const struct live_segment *s = &j->live.at[i];

        if (s->live_bytes == 0)
            return remove_dead(j, i, e) ? -1 : 1;
        if (is_to_rewrite(j, s, thorough))
            return begin_compaction(j, s->number, e) ? -1 : 1;
        if (j->in_order && dead_bytes(s) > 0)
            break; /* newer segments wait for this one */
    }
    if (is_last_wasted(j))
        return start_segment(j, e) ? -1 : 1; /* the old one can be rewritten then */
    return 0;
}

/* Rewriting needs disk space before it frees some: the reserve is for that. */
int journal_compact(struct journal *j, bool thorough, struct err *e)
{
    int rc = compact_step(j, thorough, e);

    if (rc < 0 && e->kind == ERR_STORAGE_FULL && journal_free_reserve(j))
        rc = compact_step(j, thorough, e);
    if (rc == 0)
        keep_reserve(j);
    return rc;
}

size_t journal_table_bytes(const struct journal *j)
{
    return j->live.table_bytes + j->live.relocation.n * sizeof(struct moved) +
           (j->compaction ? compaction_table_bytes(j->compaction) : 0);
}

void journal_stats(const struct journal *j, struct journal_stats *ret)
{
    *ret = j->stats;
    ret->disk_bytes = liveness_total(&j->live, &ret->live_bytes);
}
