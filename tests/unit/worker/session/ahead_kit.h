/* For tests of what is recorded before a commit: calls part by part, whose sessions can be evicted
 * and are made once more of their records. */
#ifndef RG_UNIT_SESSION_AHEAD_KIT_H
#define RG_UNIT_SESSION_AHEAD_KIT_H

#include "kit.h"
#include "worker/session/record/record.h"

struct session_answer;

/* A kit whose payloads can be evicted: the journal is what they are read back from. */
void ahead_init(struct kit *k, const char *options);

/* Answer i of a call: n_ids ids, as many logprobs, others with another seed; its text is
 * "answer i.seed". In the kit's arena. */
struct session_answer ahead_answer(struct kit *k, uint32_t i, uint32_t n_ids, unsigned seed);

/* Applies and journals a record, and empties it. */
void ahead_apply(struct kit *k, struct buf *record);

/* Records what stands before the commit, so many bytes at a time; in how many records. */
size_t ahead_parts(struct kit *k, struct session_plan *p, struct session_answer *answers,
                   uint32_t n, size_t part);
void ahead_commit(struct kit *k, struct session_plan *p, struct session_answer *answers,
                  uint32_t n);

/* Whether the record is a fragment of a payload. */
bool ahead_is_numbers(const struct kit *k, size_t record);

struct record_head ahead_head(const struct kit *k, size_t record);

/* The session made once more of its records, in a store of its own. */
struct session_store *ahead_replayed(struct kit *k, bool lazy, struct session **ret);
void ahead_state(struct session *s, struct buf *ret);

/* The n answers from checkpoint `first` on are these. */
void ahead_same(struct session *s, const struct session_answer *answers, uint32_t n, size_t first);

/* Reads the path that ends in t back in one go. 0 / -1 with k->err. */
struct checkpoint;
int ahead_recall(struct kit *k, const struct checkpoint *t);

/* Applies a fragment, as a snapshot may have it. 0 / -1 with k->err. */
int ahead_fragment(struct kit *k, uint64_t call, uint64_t before, uint64_t piece,
                   const char *bytes);

/* Of the records the second to the last but one stand before a commit, the last: without any one of
 * them, or all, it is refused whole. */
void ahead_refuses_gaps(struct kit *k);

/* The session that the records make is the live one. */
void ahead_replays(struct kit *k);

#endif
