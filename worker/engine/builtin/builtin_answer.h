/*
 * What the built-in engine says: the pure half of kind `builtin`. Modes:
 *   echo         the last user turn's text (what stands behind the role line of the last closed
 * turn) script:FILE  a JSON list; call c of a session gets item c, from the end on the last one
 * again. An item is a string, or {"text", "finish": "stop"|"length"} or {"ids", "finish"}
 *   recorded:FILE  the recorded answer to exactly these ids, with its logprobs, versions and end
 * (recorded.h); a prompt that is in no record is refused, and says where it leaves the nearest one
 *   random:SEED  printable ASCII picked by a generator seeded with SEED, session, call and answer
 * An answer that a grammar forces is its shortest sentence in modes echo and random. A script plays
 * an engine, one that disobeys too: it stands as written.
 * Other answers than recorded ones end with the model's first stop id unless they are cut; their
 * logprob of output token j with id t is -((t * 7 + j * 13) % 100) / 100.
 */
#ifndef RG_ENGINE_BUILTIN_ANSWER_H
#define RG_ENGINE_BUILTIN_ANSWER_H

#include "worker/engine/pool/adapter.h"
#include "worker/text/tokens/span.h"

struct arena;
struct builtin;

/* One whole answer; done with builtin_answer_done. */
struct builtin_answer {
    struct token_vec ids;
    float *logprobs; /* ids.n; NULL: a record without them */
    enum logprob_basis basis;
    const struct engine_version *versions; /* the engine's, or NULL */
    size_t n_versions;
    enum engine_finish finish;
    int32_t stop_id;      /* or -1 */
    struct str stop_text; /* borrowed from the request, or absent */
};

/* mode as in the --engine argument ("" is echo). ERR_CONFIG on a bad mode or script file. */
int builtin_new(const char *mode, const struct engine_options *o, struct builtin **ret,
                struct err *e);
/* Checks the mode for mistakes, without a model. */
int builtin_check(const char *mode, struct err *e);
/* Freed when it has been given up as often as it was held, and once more. */
void builtin_hold(struct builtin *b);
void builtin_free(struct builtin *b);

/* -1: the request's grammar cannot be followed, or its prompt is in no record; ret is to be freed
 * all the same. */
int builtin_answer(const struct builtin *b, const struct engine_request *r,
                   struct builtin_answer *ret, struct err *e);

/* Whether making it takes long: a helper does it better. */
bool builtin_is_long(const struct builtin *b, const struct engine_request *r);

/* Reports whether the answer takes a helper several milliseconds. */
bool builtin_takes_long(const struct builtin *b, const struct engine_request *r);

/* Copies what builtin_answer reads of the request into the arena. */
struct engine_request *builtin_request_copy(const struct engine_request *r, struct arena *a);

/* Answers like builtin_answer, on any thread; b is held. */
int builtin_answer_beside(const struct builtin *b, const struct engine_request *r,
                          struct builtin_answer *ret, struct err *e);
void builtin_answer_done(struct builtin_answer *a);

#endif
