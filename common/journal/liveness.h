/*
 * struct liveness: the places of each session's records, and the needed bytes of each segment.
 * Dropping a session subtracts its bytes from each of its segments. A released record leaves a hole
 * in the session's numbers, so that the others keep theirs. Memory only: a restart rebuilds it
 * while replaying.
 *
 * A dead record stays on the disk until its segment is rewritten, and a restart finds it. So for a
 * session that is over (liveness_drop_earlier) the table knows which segments still hold older
 * records of it. Its last record is needed until no segment does, even if its owner has released it
 * (liveness_release_last).
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
    uint64_t note_bytes; /* stay as long as anything else does */
    uint64_t total_bytes;
};

/* Place of a record in its segment's file; size 0: it was released. */
struct record_place {
    uint32_t number, size;
    uint64_t offset;
};

/* New offset in a rewritten segment of the record that was at `from`; in the order of `from`. */
struct moved {
    uint64_t from, to;
};

/* A segment of which not all places have been changed to where a rewritten one has the records. */
struct relocation {
    uint32_t old, number; /* 0: none */
    struct moved *m;
    size_t n;
    struct live_session *at; /* whose places are changed next */
    size_t record;           /* the first of those */
};

struct liveness {
    struct map sessions;
    struct list_head all; /* the sessions in the order of their first records */
    struct relocation relocation;
    size_t table_bytes; /* memory of the places of records */
    struct live_segment *at;
    size_t n, cap;

    struct list_head over;           /* sessions of which other segments have something left */
    uint32_t copied_from, copied_to; /* the last compaction that began; 0: there was none */
};

void liveness_done(struct liveness *v);

/* Starts a new last segment. */
void liveness_segment(struct liveness *v, uint32_t number);

/* Segment `number` is gone; its place in the order closes. */
void liveness_remove(struct liveness *v, uint32_t number);

/* Undoes liveness_remove: the segment is at index i again. */
void liveness_insert(struct liveness *v, size_t i, struct live_segment segment);

/* Reports that no start will find the removed segment. Sessions whose end waited for that may go.
 */
void liveness_left(struct liveness *v, uint32_t number);

/* Marks segment `from` as being copied to a new segment `to`. */
void liveness_copying(struct liveness *v, uint32_t from, uint32_t to);

/* Returns the segment's size in bytes. */
uint64_t liveness_bytes(const struct liveness *v, uint32_t number);

/* Segment `old` is replaced by `number`, `bytes` long, which has its needed records only. */
void liveness_renumber(struct liveness *v, uint32_t old, uint32_t number, uint64_t bytes);

/* Records that the records of segment `old` are now in segment `number`, at the places in `m`,
 * which it takes ownership of. Valid at once. The cost for each place in memory follows in
 * liveness_move_on. No earlier move may be unfinished. */
void liveness_moved(struct liveness *v, uint32_t old, uint32_t number, struct moved *m, size_t n);

/* Whether that is so, and no other segment may be copied or removed; a step of it. */
bool liveness_is_moving(const struct liveness *v);
void liveness_move_on(struct liveness *v);

/* A record went to that place; `id` absent: it needs not be kept. */
void liveness_add(struct liveness *v, struct record_place place, struct str id);

/* Releases the session's record number i; the others remain. An unknown number, a record released
 * before, and a session of which only the last record is needed are no errors. */
void liveness_release(struct liveness *v, struct str id, size_t i);

/* The session's records are needed no longer. */
void liveness_drop(struct liveness *v, struct str id);

/* All but the session's last one: it is over. */
void liveness_drop_earlier(struct liveness *v, struct str id);

/* Whether the session is over. */
bool liveness_is_over(const struct liveness *v, struct str id);

/* Whether a segment with some of its records may leave the disk before another one. */
bool liveness_is_spread(const struct liveness *v, struct str id);

/* Releases the last record of a session that is over: it may go as soon as no segment holds an
 * older record of the session. False: it was released before, or the session is not over. */
bool liveness_release_last(struct liveness *v, struct str id);

/* Counts the records that the session has had, including released ones: the number of its next one.
 */
size_t liveness_records(const struct liveness *v, struct str id);

/* Bytes of its records that are needed. */
uint64_t liveness_session_bytes(const struct liveness *v, struct str id);

/* Reports whether the record of that id at that place is needed by the session that has the id now,
 * not by an earlier one. For the compaction of liveness_copying, which must ask in the order of the
 * places. */
bool liveness_wants(struct liveness *v, struct str id, uint32_t number, uint64_t offset);

/* Finds the session's record number i, from 0, of size 0 if it was released; false after the last.
 */
bool liveness_find(const struct liveness *v, struct str id, size_t i, struct record_place *ret);

/* Returns the bytes of all segments, and in *ret_live those of needed records. */
uint64_t liveness_total(const struct liveness *v, uint64_t *ret_live);

#endif
