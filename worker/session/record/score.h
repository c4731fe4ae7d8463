/*
 * Scores: the logprobs that a different engine (a teacher, a reference, or the policy again)
 * computes for a branch's ids. A session may want scores (options of POST /sessions, or of
 * finalize). Each known score is a record of its own, so that a crash loses none that was recorded.
 */
#ifndef RG_SESSION_SCORE_H
#define RG_SESSION_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct arena;
struct buf;
struct checkpoint;
struct err;
struct json;
struct session;
struct token_span;

enum score_what { SCORE_TEACHER, SCORE_REFERENCE, SCORE_SELF, SCORE_KINDS };

enum { SCORE_TOP_MAX = 128 };

/* A score that is wanted. At most one of each kind. */
struct score_want {
    struct str engine;
    uint32_t top_k;
    enum score_what what;
};

struct score_wants {
    struct score_want at[SCORE_KINDS];
    size_t n;
};

/* Reads [{"engine", "top_k"?, "what"?}]; null: none. Texts are borrowed. Returns -1 with
 * ERR_INVALID and e->param "score". */
int score_wants_read(const struct json *v, struct score_wants *ret, struct err *e);

/* Returns the scores that the session itself wants. */
struct score_wants session_score_wants(const struct session *s);

/* A known score, of the ids of the path that ends in `head`. */
struct score {
    enum score_what what;
    struct str engine;
    uint32_t top_k;
    struct checkpoint *head;
    const float *logprobs;     /* head->total values, the first 0 */
    const int32_t *top_ids;    /* head->total x top_k ids, or NULL */
    const float *top_logprobs; /* logprobs of top_ids, or NULL */
};

/* Returns the number of scores of any kind. Later scores have larger indexes. */
size_t session_scores(const struct session *s);

/* Returns the newest score of that kind for the path among the first n; also one of a longer path
 * that begins with it. Returns NULL if there is none. */
const struct score *session_score(const struct session *s, const struct checkpoint *head,
                                  enum score_what what, size_t n);

/* Reports whether some message has a picture. The ids alone, which scorers are sent, are then a
 * different prompt. */
bool session_shows_images(const struct session *s);

/* Reports whether a branch lacks a score, and sets *ret to what is known of it. */
bool session_unscored(struct session *s, const struct score_wants *wants, struct score *ret);

/* Copies the ids that a score is of into the arena, and reads evicted ones back. Returns -1 if they
 * cannot be read. The session must stay pinned. */
MAY_PAUSE int session_score_ids(const struct score *of, struct session *s, struct arena *a,
                                struct token_span *ret_ids, struct err *e);

/* Writes the record of a score. */
void session_score_record(const struct session *s, const struct score *score, uint64_t now_ms,
                          struct buf *record);

#endif
