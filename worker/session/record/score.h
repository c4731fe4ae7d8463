/*
 * Scores: what another engine (a teacher, a reference, the policy once more) makes of a branch's
 * ids. A session wants some (options of POST /sessions, or of finalize); each that is known is a
 * record of its own, so a crash loses none that was noted.
 */
#ifndef RG_SESSION_SCORE_H
#define RG_SESSION_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct buf;
struct checkpoint;
struct err;
struct json;
struct recall;
struct session;
struct token_span;

enum score_what { SCORE_TEACHER, SCORE_REFERENCE, SCORE_SELF, SCORE_KINDS };

enum { SCORE_TOP_MAX = 128 };

/* One that is wanted. At most one of each kind. */
struct score_want {
    struct str engine;
    uint32_t top_k;
    enum score_what what;
};

struct score_wants {
    struct score_want at[SCORE_KINDS];
    size_t n;
};

/* Reads [{"engine", "top_k"?, "what"?}]; null: none. Texts are borrowed. ERR_INVALID, e->param
 * "score". */
int score_wants_read(const struct json *v, struct score_wants *ret, struct err *e);

/* Returns what the session itself wants. */
struct score_wants session_score_wants(const struct session *s);

/* One that is known: of the ids of the path that ends in `head`. */
struct score {
    enum score_what what;
    struct str engine;
    uint32_t top_k;
    struct checkpoint *head;
    const float *logprobs;     /* head->total, the first 0 */
    const int32_t *top_ids;    /* head->total x top_k, or NULL */
    const float *top_logprobs; /* logprobs of top_ids, or NULL */
};

/* How many scores there are, of any kind: those that come later stand behind them. */
size_t session_scores(const struct session *s);

/* The newest of that kind for the path among the first n, also one that was made of a longer path
 * that begins with it. NULL: there is none. */
const struct score *session_score(const struct session *s, const struct checkpoint *head,
                                  enum score_what what, size_t n);

/* Whether some message has a picture: then ids alone, which scorers are sent, are another prompt.
 */
bool session_shows_images(const struct session *s);

/* Whether a branch lacks a score: that, as far as it is known. */
bool session_unscored(struct session *s, const struct score_wants *wants, struct score *ret);

/* The ids that a score is of, in the arena: what of them has left memory is read back first, a part
 * at a time, and held; *r, NULL before, is the caller's then, to be freed by session_score_release.
 * Returns 0 with the ids; 1 if there is more to read, for a later turn; -1 and e if it cannot be
 * read back. The session stays pinned. */
int session_score_ids(const struct score *of, struct recall **r, struct session *s, struct arena *a,
                      struct token_span *ret_ids, struct err *e);
void session_score_release(struct recall **r);

/* Writes the record of one. */
void session_score_record(const struct session *s, const struct score *score, uint64_t now_ms,
                          struct buf *record);

#endif
