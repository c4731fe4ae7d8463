/*
 * struct journal: one worker's append-only log of records: length, CRC32C, session id, payload.
 * It frames, checks and stores; what a payload means is session's business (session_apply).
 * Format drawn in segment.h. Torn tails are repaired on open, to the last whole record, and said.
 */
#ifndef RG_JOURNAL_JOURNAL_H
#define RG_JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;
struct journal;
struct loop;
struct metrics_page;

/* Bytes of a record at most. */
enum { JOURNAL_RECORD_MAX = (1 << 30) - 4096 };

/* Records that one look-over for absent sessions appends at most. */
enum { JOURNAL_LAST_WORDS = 1024 };

enum journal_durability { JOURNAL_NONE, JOURNAL_PROCESS, JOURNAL_POWER };

/* Records under this id are notes next to the sessions (worker/ledger/delivery.h). They are
 * replayed like others, but do not keep a segment. */
#define JOURNAL_NOTE "~"

struct journal_options {
    const char *dir; /* folder of this worker's journal; made if missing */
    enum journal_durability durability;
    bool syncs; /* JOURNAL_PROCESS: compaction syncs, as with JOURNAL_POWER: for tools, whose
                 * journal may be one of that */
    uint64_t segment_bytes;
    uint64_t wait_ms; /* for another process that has it open to end */
    /* Dropped records leave the disk in the order of their appending: a session's last record never
     * before its first ones, which would be replayed without it. For sessions whose last record is
     * not kept (journal_drop_earlier). Disk space is freed later. */
    bool in_order;
    /* Writes the payload of a last record (a tombstone), after which a replay builds nothing of the
     * session. NULL: none is written. For owners that keep last records (journal_drop_earlier) and
     * must free disk space at once. journal_drop_absent appends it to a session with records in
     * several segments. It stays until all older records of the session have left the disk. */
    void (*last_word)(struct str session_id, struct buf *payload);
    struct metrics_page *metrics; /* where fsync times go; or NULL */
};

/* Called for every whole record on replay, oldest first; -1 stops and fails the open. */
typedef int (*journal_replay_fn)(void *ctx, struct str session_id, struct str payload,
                                 struct err *e);

/* Opens a journal, repairs its end and replays it. One process has it at a time. A different format
 * version or a foreign manifest is an error that changes nothing. JOURNAL_NONE keeps nothing on
 * disk and replays nothing. *ret is set before the replay. The replay function may call
 * journal_release and journal_records, which does not contain the current record yet. On error *ret
 * is NULL. */
int journal_open(struct loop *loop, const struct journal_options *o, journal_replay_fn replay,
                 void *ctx, struct journal **ret, struct err *e);

/* Flushes all appended records and closes the journal. */
void journal_close(struct journal *j);

/* Another --journal-segment-bytes, for segments that begin from now on. */
void journal_resize(struct journal *j, uint64_t segment_bytes);

/* Appends one record. Its id is 1 to 255 letters, digits, '.' and '-', or JOURNAL_NOTE. When it
 * returns 0 or 1, the bytes have been written (durability process). With durability `power` it
 * returns 0, and calls `durable` (may be NULL) when a group fsync covers the record. Otherwise it
 * returns 1 and never calls `durable`. -1 (ERR_STORAGE_FULL, ERR_IO): nothing was appended. */
int journal_append(struct journal *j, struct str session_id, struct str payload,
                   void (*durable)(void *ctx), void *ctx, struct err *e);

/* Waits for all records appended so far. Returns 1 if they are as durable as the options ask;
 * `durable` is never called then. Returns 0 if `durable` is called later, like that of
 * journal_append. */
int journal_await(struct journal *j, void (*durable)(void *ctx), void *ctx);

/* Frees the disk space that the journal keeps in reserve, so that on a full disk a session can be
 * ended and its segment rewritten. Returns false if there is no reserve. journal_compact makes the
 * reserve again when there is space. */
bool journal_free_reserve(struct journal *j);

/* Takes back a pending `durable` call (its owner is gone). */
void journal_forget(struct journal *j, void *ctx);

/* Records of this session are no longer needed (ended and delivered): compacted away later. */
void journal_drop_session(struct journal *j, struct str session_id);

/* Counts the records that the session has had, including released ones: the number of its next one.
 * 0 with JOURNAL_NONE. */
size_t journal_records(const struct journal *j, struct str session_id);

/* Bytes that the session's records take, but for those that are needed no longer. */
uint64_t journal_session_bytes(const struct journal *j, struct str session_id);

/* Releases one record of the session. It is not read back again, and a compaction removes it later.
 * The other records keep their numbers. A restart that still finds it replays it. */
void journal_release(struct journal *j, struct str session_id, uint32_t record);

/* Gets records that are read back; a failure ends the reading. */
struct journal_reader {
    int (*each)(void *ctx, size_t record, struct str payload, struct err *e);
    void *ctx;
};

/* All but the session's last record: it has ended, and that is all there is to be known of it. */
void journal_drop_earlier(struct journal *j, struct str session_id);

/* Reads records of a session again that were freed from memory, without released ones. It reads
 * from number *at on (from 0, in the order of appending): at least one record, at most 64 KB if
 * they are several. *at moves to the next. Returns 1 if `each` got them, 0 if there are no more
 * (the session was dropped, or JOURNAL_NONE), -1 if they cannot be read or `each` failed. */
int journal_read(struct journal *j, struct str session_id, size_t *at,
                 const struct journal_reader *reader, struct err *e);

/* Reads the n records of a session with these numbers, in the order of the disk, with as few reads
 * as possible. `each` gets the index into `records`. Released records are skipped. -1: some other
 * record cannot be read. */
int journal_read_records(struct journal *j, struct str session_id, const uint32_t *records,
                         size_t n, const struct journal_reader *reader, struct err *e);

/* Drops all sessions that `needed` denies; returns how many. For a look-over now and then. If
 * the journal writes last words (journal_options.last_word), one look-over writes at most
 * JOURNAL_LAST_WORDS. The sessions beyond them, and those after a failed write, wait for the next
 * look-over. */
size_t journal_drop_absent(struct journal *j, bool (*needed)(void *ctx, struct str session_id),
                           void *ctx);

/* Position of journal_drop_batch. Zeroed: at the start. */
struct journal_look {
    size_t at;      /* the next place to look at */
    unsigned words; /* last words that were written */
    size_t dropped; /* sessions, so far */
};

/* Does journal_drop_absent in steps, for a loop. Each step reads so many slots of the table of
 * sessions, each with one session or none. True: there are more. Sessions that are added or move in
 * the table between two steps may be missed until the next round. */
bool journal_drop_batch(struct journal *j, struct journal_look *l,
                        bool (*needed)(void *ctx, struct str session_id), void *ctx, size_t places);

/* Runs one step of compaction: removes a dead segment, or rewrites the next piece of one that is
 * mostly dead (with `thorough`: has any dead byte). If that is the last segment, a new one is
 * started first. A step copies half a megabyte, or one longer record, and with `power` syncs it.
 * After the last piece, steps change the places of its records in memory. Returns 1 if it did
 * something (call again), 0 if nothing is to do. -1: ERR_IO or ERR_STORAGE_FULL (with the reserve
 * already freed); nothing has changed. */
int journal_compact(struct journal *j, bool thorough, struct err *e);

struct journal_stats {
    uint64_t records, bytes;      /* appended since the open */
    uint64_t replayed;            /* records at the open */
    uint64_t repairs, lost_bytes; /* torn tails and damage at the open */
    uint64_t fsyncs, fsync_us;    /* how many, and how long the last one took */
    uint64_t reads, read_bytes; /* reads of journal_read and journal_read_records since the open */
    uint64_t disk_bytes, live_bytes; /* bytes of all segments; of needed records */
};

void journal_stats(const struct journal *j, struct journal_stats *ret);

/* Returns the memory of the journal's table of record places, in bytes. */
size_t journal_table_bytes(const struct journal *j);

#endif
