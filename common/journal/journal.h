/*
 * struct journal: one worker's append-only log of records: length, CRC-32C, session id, payload. It
 * frames, checks and stores records. session_apply interprets the payloads. segment.h shows the
 * format. Opening a journal cuts and logs a torn tail after the last whole record.
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

/* Largest size of a record in bytes. */
enum { JOURNAL_RECORD_MAX = (1 << 30) - 4096 };

/* Largest number of tombstones (journal_options.last_word) that one pass of journal_drop_absent
 * writes. */
enum { JOURNAL_LAST_WORDS = 1024 };

enum journal_durability { JOURNAL_NONE, JOURNAL_PROCESS, JOURNAL_POWER };

/* The id of notes: records that belong to no session (worker/ledger/delivery.h). They are replayed
 * like others, but a segment is not kept for them. */
#define JOURNAL_NOTE "~"

struct journal_options {
    const char *dir; /* folder of this worker's journal; made if it is missing */
    enum journal_durability durability;
    bool syncs; /* compaction syncs even with JOURNAL_PROCESS: for tools, whose journal may be used
                   with JOURNAL_POWER otherwise */
    uint64_t segment_bytes;
    uint64_t wait_ms; /* longest wait for a different process to close the journal */
    /* Dropped records leave the disk in the order in which they were appended. So a session's first
     * records never outlive its last one, and are not replayed without it. For sessions whose last
     * record is not kept (journal_drop_earlier). Frees disk space later. */
    bool in_order;
    /* Writes the payload of a last word (a tombstone), after which a replay builds nothing of the
     * session. NULL: no last words. For owners that keep last records (journal_drop_earlier) and
     * must free disk space at once. journal_drop_absent appends it to a session with records in
     * several segments. It stays until all older records of the session have left the disk. */
    void (*last_word)(struct str session_id, struct buf *payload);
    struct metrics_page *metrics; /* receives the fsync times; or NULL */
};

/* Receives every whole record of a replay, oldest first. Returns 0, or -1 with e to stop and fail
 * the open. */
typedef int (*journal_replay_fn)(void *ctx, struct str session_id, struct str payload,
                                 struct err *e);

/* Opens a journal, cuts a torn tail and replays the records. Only one process can have it open. A
 * different format or a foreign manifest is an error that changes nothing. JOURNAL_NONE writes no
 * files and replays nothing. *ret is set before the replay. The replay function may call
 * journal_release and journal_records, which does not count the current record yet. On error *ret
 * is NULL. */
int journal_open(struct loop *loop, const struct journal_options *o, journal_replay_fn replay,
                 void *ctx, struct journal **ret, struct err *e);

/* Flushes all appended records and closes the journal. Accepts NULL. */
void journal_close(struct journal *j);

/* Changes --journal-segment-bytes for segments that begin from now on. */
void journal_resize(struct journal *j, uint64_t segment_bytes);

/* Appends one record. Its id has 1 to 255 letters, digits, '.' and '-', or is JOURNAL_NOTE. Returns
 * 1 if the bytes are as durable as the options require; `durable` is never called then. Returns 0
 * with JOURNAL_POWER: the bytes are written, and `durable` (may be NULL) is called when a group
 * fsync covers the record. Returns -1 (ERR_STORAGE_FULL, ERR_IO) if nothing was appended. */
int journal_append(struct journal *j, struct str session_id, struct str payload,
                   void (*durable)(void *ctx), void *ctx, struct err *e);

/* Waits for all records appended so far. Returns 1 if they are as durable as the options require;
 * `durable` is never called then. Returns 0 if `durable` is called later. */
int journal_await(struct journal *j, void (*durable)(void *ctx), void *ctx);

/* Frees the disk space that the journal keeps in reserve, so that on a full disk a session can be
 * ended and its segment rewritten. Returns false if there is no reserve. journal_compact restores
 * the reserve when there is space. */
bool journal_free_reserve(struct journal *j);

/* Cancels the pending `durable` calls of this ctx, whose owner ends. */
void journal_forget(struct journal *j, void *ctx);

/* Marks all records of the session as dead. A compaction removes them later. */
void journal_drop_session(struct journal *j, struct str session_id);

/* Returns the number of records that the session has had, including released ones. The next record
 * gets this number. 0 with JOURNAL_NONE. */
size_t journal_records(const struct journal *j, struct str session_id);

/* Returns the bytes of the session's needed records. */
uint64_t journal_session_bytes(const struct journal *j, struct str session_id);

/* Releases one record of the session: it is not read back again, and a compaction removes it later.
 * Other records keep their numbers. A restart that still finds the record replays it. */
void journal_release(struct journal *j, struct str session_id, uint32_t record);

/* Receives records that are read back. `each` returns 0, or -1 with e to stop the reading. */
struct journal_reader {
    int (*each)(void *ctx, size_t record, struct str payload, struct err *e);
    void *ctx;
};

/* Marks all records but the session's last one as dead, because the session has ended. The last
 * record is kept until no segment has older records of the session. */
void journal_drop_earlier(struct journal *j, struct str session_id);

/* Reads back records of a session in the order of appending, from number *at on (first call: 0).
 * Skips released ones. Reads at least one record, and at most 64 KiB if it reads several. Moves *at
 * to the next number. Returns 1 if `each` received records, and 0 if there are no more (the session
 * was dropped, or JOURNAL_NONE). Returns -1 if they cannot be read or `each` failed. */
int journal_read(struct journal *j, struct str session_id, size_t *at,
                 const struct journal_reader *reader, struct err *e);

/* Reads the n records of a session with these numbers, in the order of the disk, with few reads.
 * `each` receives the index into `records`. Skips released records. Returns 0. Returns -1 if a
 * record cannot be read or `each` failed. */
int journal_read_records(struct journal *j, struct str session_id, const uint32_t *records,
                         size_t n, const struct journal_reader *reader, struct err *e);

/* Drops all sessions for which `needed` returns false. Returns their number. If the journal writes
 * last words (journal_options.last_word), one pass writes at most JOURNAL_LAST_WORDS. The other
 * sessions, and all after a failed write, wait for the next pass. */
size_t journal_drop_absent(struct journal *j, bool (*needed)(void *ctx, struct str session_id),
                           void *ctx);

/* Position of journal_drop_batch. A zeroed struct is at the start. */
struct journal_look {
    size_t at;      /* index of the next slot of the table of sessions */
    unsigned words; /* number of last words that were written */
    size_t dropped; /* number of dropped sessions so far */
};

/* Runs journal_drop_absent in steps, for a loop. Each step checks `places` slots of the table of
 * sessions, each with at most one session. Returns true if more slots remain. Sessions that are
 * added or move in the table between two steps may be missed until the next pass. */
bool journal_drop_batch(struct journal *j, struct journal_look *l,
                        bool (*needed)(void *ctx, struct str session_id), void *ctx, size_t places);

/* Runs one step of compaction: removes a dead segment, or rewrites the next 512 KiB, or one longer
 * record, of a segment that is mostly dead. `thorough`: of a segment with any dead byte. If that is
 * the last segment, starts a new last one first. With JOURNAL_POWER each step is synced. After the
 * rewriting, further steps update the positions of records in memory. Returns 1 if it did something
 * (call again), and 0 if there is nothing to do. Returns -1 with ERR_IO, or with ERR_STORAGE_FULL
 * after it has freed the reserve; nothing has changed then. */
int journal_compact(struct journal *j, bool thorough, struct err *e);

struct journal_stats {
    uint64_t records, bytes;      /* since the open */
    uint64_t replayed;            /* number of records replayed at the open */
    uint64_t repairs, lost_bytes; /* number of torn tails at the open; bytes of tails and damage */
    uint64_t reads;               /* by journal_read and journal_read_records since the open */
    uint64_t disk_bytes, live_bytes; /* bytes of all segments; of needed records */
};

void journal_stats(const struct journal *j, struct journal_stats *ret);

/* Returns the memory of the table of record positions, in bytes. */
size_t journal_table_bytes(const struct journal *j);

#endif
