/* A kit for tests of fragments that are recorded before a commit. Sessions can be evicted, and
 * rebuilt from their records. */
#ifndef RG_UNIT_SESSION_AHEAD_KIT_H
#define RG_UNIT_SESSION_AHEAD_KIT_H

#include "kit.h"
#include "worker/session/record/record.h"
#include "worker/text/tokens/span.h"

struct session_answer;

/* Initializes a kit whose payloads can be evicted. They are read back from the journal. */
void ahead_init(struct kit *k, const char *options);

/* Makes answer i of a call in the kit's arena: n_ids ids, as many logprobs, the text "answer
 * i.seed". A different seed gives a different answer. */
struct session_answer ahead_answer(struct kit *k, uint32_t i, uint32_t n_ids, unsigned seed);

/* Applies a record, adds it to the journal, and empties it. */
void ahead_apply(struct kit *k, struct buf *record);

/* Records the fragments of a call, `part` bytes each. Returns the number of records. */
size_t ahead_parts(struct kit *k, struct session_plan *p, struct session_answer *answers,
                   uint32_t n, size_t part);
void ahead_commit(struct kit *k, struct session_plan *p, struct session_answer *answers,
                  uint32_t n);

/* Reports whether the record is a fragment of a payload. */
bool ahead_is_numbers(const struct kit *k, size_t record);

struct record_head ahead_head(const struct kit *k, size_t record);

/* Rebuilds the session from its records in a new store. */
struct session_store *ahead_replayed(struct kit *k, bool lazy, struct session **ret);
void ahead_state(struct session *s, struct buf *ret);

/* Checks that the n checkpoints from `first` on have these answers. */
void ahead_same(struct session *s, const struct session_answer *answers, uint32_t n, size_t first);

/* Reads back the path that ends at t in one step. Returns 0, or -1 with k->err. */
struct checkpoint;
int ahead_recall(struct kit *k, const struct checkpoint *t);

/* Copies ids to the kit's arena. */
struct token_span ahead_ids(struct kit *k, struct token_parts ids);

/* Makes the prompt of a plan, and copies it to the kit's arena. */
struct token_span ahead_prompt(struct kit *k, struct session_plan *p);

/* Applies a fragment, such as one of a snapshot. Returns 0, or -1 with k->err. */
int ahead_fragment(struct kit *k, uint64_t call, uint64_t before, uint64_t piece,
                   const char *bytes);

/* Checks that the last record, a commit, is refused as a whole if any or all of its fragments are
 * missing. The fragments are all records but the first and the last. */
void ahead_refuses_gaps(struct kit *k);

/* Checks that the session rebuilt from the records equals the live one. */
void ahead_replays(struct kit *k);

#endif
