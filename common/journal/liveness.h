/*
 * struct liveness: the positions of each session's records, and the needed bytes of each segment.
 * Dropping a session subtracts its bytes from each of its segments. A released record leaves a gap
 * in the session's numbers, so that the others keep theirs. It is only in memory: a restart
 * rebuilds it while replaying.
 *
 * A dead record stays on disk until its segment is rewritten, and a restart finds it. So for a
 * session that is over (liveness_drop_earlier), the table stores which segments still have older
 * records of it. Its last record is needed until no such segment remains, even if its owner has
 * released it (liveness_release_last).
 */
#ifndef RG_JOURNAL_LIVENESS_H
#define RG_JOURNAL_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/str.h"

struct live_session;

struct live_segment {
    uint32_t number;
    uint64_t live_bytes;
    uint64_t note_bytes; /* bytes of notes, which stay as long as any other record does */
    uint64_t total_bytes;
};

/* Position of a record in its segment's file. size 0: the record was released. */
struct record_place {
    uint32_t number, size;
    uint64_t offset;
};

/* Offsets of a record before and after its segment was rewritten. Lists are sorted by `from`. */
struct moved {
    uint64_t from, to;
};

/* A rewritten segment: positions in memory that still refer to the old one are being updated. */
struct relocation {
    uint32_t old, number; /* number 0: no update is in progress */
    struct moved *m;
    size_t n;
    struct live_session *at; /* the session that is updated next */
    size_t record;           /* index of the next record of that session */
};

struct liveness {
    struct map sessions;
    struct list_head all; /* all sessions, ordered by their first records */
    struct relocation relocation;
    size_t table_bytes; /* memory of the positions of records */
    struct live_segment *at;
    size_t n, cap;

    struct list_head over; /* sessions that are over and have older records in other segments */
    uint32_t copied_from, copied_to; /* the compaction that began last; 0: none began */
};

void liveness_done(struct liveness *v);

/* Adds a new last segment. */
void liveness_segment(struct liveness *v, uint32_t number);

/* Removes segment `number` from the order. */
void liveness_remove(struct liveness *v, uint32_t number);

/* Undoes liveness_remove: the segment has index i again. */
void liveness_insert(struct liveness *v, size_t i, struct live_segment segment);

/* Records that no start will find the removed segment. May free sessions that waited for that. */
void liveness_left(struct liveness *v, uint32_t number);

/* Marks segment `from` as being copied to a new segment `to`. */
void liveness_copying(struct liveness *v, uint32_t from, uint32_t to);

/* Returns the segment's size in bytes. */
uint64_t liveness_bytes(const struct liveness *v, uint32_t number);

/* Replaces segment `old` by `number`, which has `bytes` bytes: the needed records only. */
void liveness_renumber(struct liveness *v, uint32_t old, uint32_t number, uint64_t bytes);

/* Records that the records of segment `old` are now in segment `number`, at the n offsets in m.
 * Takes ownership of m. Positions are right at once; liveness_move_on updates the table step by
 * step. No earlier update may be in progress. */
void liveness_moved(struct liveness *v, uint32_t old, uint32_t number, struct moved *m, size_t n);

/* Reports whether such an update is in progress. No other segment may be copied or removed then.
 * liveness_move_on runs one step of it. */
bool liveness_is_moving(const struct liveness *v);
void liveness_move_on(struct liveness *v);

/* Adds a record at that position. `id` absent: a note, for which no segment is kept. */
void liveness_add(struct liveness *v, struct record_place place, struct str id);

/* Releases the session's record number i; the others remain. Ignores an unknown number, a record
 * that was released before, and a session that is over. */
void liveness_release(struct liveness *v, struct str id, size_t i);

/* Marks all records of the session as dead. Ignores unknown sessions. */
void liveness_drop(struct liveness *v, struct str id);

/* Marks the session as over: all its records but the last one are dead. */
void liveness_drop_earlier(struct liveness *v, struct str id);

/* Reports whether the session is over. */
bool liveness_is_over(const struct liveness *v, struct str id);

/* Reports whether the session has records in several segments, which may leave the disk in any
 * order. */
bool liveness_is_spread(const struct liveness *v, struct str id);

/* Releases the last record of a session that is over. The record is dropped as soon as no segment
 * has an older record of the session. Returns false if it was released before, or the session is
 * not over. */
bool liveness_release_last(struct liveness *v, struct str id);

/* Returns the number of records that the session has had, including released ones. The next record
 * gets this number. */
size_t liveness_records(const struct liveness *v, struct str id);

/* Returns the bytes of the session's needed records. */
uint64_t liveness_session_bytes(const struct liveness *v, struct str id);

/* Reports whether the record at that position is needed by the session that has the id now, not by
 * an earlier one. For the compaction of liveness_copying, which must ask in ascending order of
 * offsets. */
bool liveness_wants(struct liveness *v, struct str id, uint32_t number, uint64_t offset);

/* Finds the session's record number i, from 0. Its size is 0 if it was released. Returns false
 * after the last. */
bool liveness_find(const struct liveness *v, struct str id, size_t i, struct record_place *ret);

/* Returns the bytes of all segments, and in *ret_live those of needed records. */
uint64_t liveness_total(const struct liveness *v, uint64_t *ret_live);

#endif
