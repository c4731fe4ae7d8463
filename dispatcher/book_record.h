/*
 * The dispatcher's journal records: JSON objects, one for each change. They are kept under the id
 * of their group (common/journal), so that all records of a group can be dropped at once when it is
 * acknowledged.
 *
 *   {"t": "group",    "id": G, "at": ms, "seq"?, "continues"?, "group": {submission}}
 *   {"t": "claim",    "id": G, "at": ms, "rollout": k, "attempt": A, "session": S, "executor": X}
 *   {"t": "end",      "id": G, "at": ms, "attempt": A, "outcome": "ok",
 *                 "lost"?, "refused"?, "open"?, "beside"?, result...}
 *   {"t": "deadline", "id": G, "at": ms}
 *   {"t": "cancel",   "id": G, "at": ms, "deliver": false}
 *   {"t": "taken", "id": G, "at": ms, "lease_ms": ms}        (no queue, in a fleet: first answer)
 *   {"t": "returned" | "acked", "id": G, "at": ms}
 *   {"t": "told", "id": G, "at": ms, "submitted"?: ms}
 *   {"t": "lost", "id": G, "at": ms, "attempt": A}
 *   {"t": "telling", "id": G, "at": ms}                 (in a fleet: before its entry is sent)
 *
 * Settling follows from a group's records (book.c: settle_if_decided), so it has no record of its
 * own. `at` is the wall clock in milliseconds. In a fleet a group's record has the number of its
 * submission, and says whether its log also has an earlier group of the id (book_replay.h).
 */
#ifndef RG_DISPATCHER_BOOK_RECORD_H
#define RG_DISPATCHER_BOOK_RECORD_H

#include "dispatcher/rollouts.h"

struct json;

enum record_kind {
    RECORD_GROUP,
    RECORD_CLAIM,
    RECORD_END,
    RECORD_DEADLINE,
    RECORD_CANCEL,
    RECORD_TAKEN,
    RECORD_RETURNED,
    RECORD_ACKED,
    RECORD_TOLD,
    RECORD_LOST,
    RECORD_TELLING,
    RECORD_KINDS /* an unknown kind */
};

/* --- writing; each replaces the content of `out` --- */
struct record_begin {
    uint64_t seq;   /* 0: not written */
    bool continues; /* the log has records of an earlier group of the id */
};

void record_group(struct str id, struct str submission, struct record_begin begin, uint64_t at_ms,
                  struct buf *out);

struct record_claim {
    uint32_t rollout;
    struct str attempt, session, executor;
};

void record_claim(struct str id, const struct record_claim *c, uint64_t at_ms, struct buf *out);

/* Reason for the end of an attempt. */
enum end_kind {
    /* reported by its executor, and its session is finalized: the attempt may count */
    END_FINALIZED,
    END_OPEN,   /* reported by its executor; no export exists that could count */
    END_LOST,   /* the attempt's lease ran out while its session was open */
    END_REFUSED /* the gateway refuses its session, and would refuse the next one, too */
};

void record_end(const struct attempt *a, enum outcome outcome, enum end_kind kind,
                const struct result *r, uint64_t at_ms, struct buf *out);
void record_cancel(struct str id, bool deliver, uint64_t at_ms, struct buf *out);

void record_taken(struct str id, uint64_t lease_ms, uint64_t at_ms, struct buf *out);

/* Writes a told record. `submitted_at_ms` distinguishes the group from others, because ids may be
 * used again. */
void record_told(struct str id, uint64_t submitted_at_ms, uint64_t at_ms, struct buf *out);

/* Writes that the fleet has lost the session of an attempt that counted. */
void record_lost(const struct attempt *a, uint64_t at_ms, struct buf *out);

/* Writes a record without further members: RECORD_DEADLINE, RECORD_RETURNED, RECORD_ACKED or
 * RECORD_TELLING. */
void record_plain(enum record_kind kind, struct str id, uint64_t at_ms, struct buf *out);

/* --- reading --- */

/* Reports whether the text is a record of the kind RECORD_TELLING. */
bool record_is_telling(struct str text);

enum record_kind record_kind(const struct json *r);
uint64_t record_at(const struct json *r);

/* Read a group's record: the number of its submission (0: not written), and whether its log also
 * has an earlier group of the id. */
uint64_t record_seq(const struct json *r);
bool record_continues(const struct json *r);

/* Returns from a taken record how long the trainer may keep the group, in milliseconds. */
uint64_t record_lease_ms(const struct json *r);

/* Returns from a told record when its group was submitted, by the wall clock; 0: the record does
 * not contain it. */
uint64_t record_submitted(const struct json *r);

/* Returns the outcome in a record; OUTCOMES if it has no valid one. */
enum outcome record_outcome(const struct json *r);

/* Reads the result of an end record. Frees the previous content of *ret. */
void record_result(const struct json *r, struct result *ret);

#endif
