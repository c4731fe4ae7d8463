/*
 * The answers of the built-in engine: the pure half of kind `builtin`. Modes:
 *   echo           the last user turn's text (what follows the role line of the last closed turn)
 *   script:FILE    a JSON list; call c of a session gets item c, beyond the end the last one. An
 *                  item is a string, or {"text", "finish": "stop"|"length"} or {"ids", "finish"}
 *   recorded:FILE  the recorded answer to exactly these ids, with its logprobs, versions and end
 *                  (recorded.h). A prompt without a record is refused (recorded_explain)
 *   random:SEED    printable ASCII from a generator seeded with SEED, session, call and answer
 *
 * If a grammar applies, the answer is its shortest sentence in modes echo and random. A script
 * plays an engine, even one that ignores grammars, so it is not changed. Except for recorded ones,
 * answers end with the model's first stop id unless they are cut. Their logprob of output token j
 * with id t is -((t * 7 + j * 13) % 100) / 100.
 */
#ifndef RG_ENGINE_BUILTIN_ANSWER_H
#define RG_ENGINE_BUILTIN_ANSWER_H

#include "worker/engine/pool/adapter.h"
#include "worker/text/tokens/span.h"

struct builtin;

/* One whole answer. Free it with builtin_answer_done. */
struct builtin_answer {
    struct token_vec ids;
    float *logprobs; /* ids.n of them; NULL: the record has none */
    enum logprob_basis basis;
    const struct engine_version *versions; /* the recorded engine's, or NULL */
    size_t n_versions;
    enum engine_finish finish;
    int32_t stop_id;      /* -1: it did not end with a stop id */
    struct str stop_text; /* borrowed from the request, or absent */
};

/* Makes the engine. mode: as in the --engine argument ("" is echo). Fails with ERR_CONFIG for a bad
 * mode or script file. */
int builtin_new(const char *mode, const struct engine_options *o, struct builtin **ret,
                struct err *e);
/* Checks the mode for mistakes, without a model. */
int builtin_check(const char *mode, struct err *e);
/* Adds a hold. builtin_free frees b when it was called once more than builtin_hold. */
void builtin_hold(struct builtin *b);
void builtin_free(struct builtin *b);

/* Makes the answer. Returns -1 if the request's grammar cannot be followed, or if its prompt is in
 * no record. ret must be freed in any case. */
int builtin_answer(const struct builtin *b, const struct engine_request *r,
                   struct builtin_answer *ret, struct err *e);

/* Reports whether making the answer takes so long that a helper should do it. */
bool builtin_is_long(const struct builtin *b, const struct engine_request *r);

/* Reports whether the answer takes a helper several milliseconds. */
bool builtin_takes_long(const struct builtin *b, const struct engine_request *r);

/* Answers like builtin_answer, on any thread. b must be held. */
int builtin_answer_beside(const struct builtin *b, const struct engine_request *r,
                          struct builtin_answer *ret, struct err *e);
void builtin_answer_done(struct builtin_answer *a);

#endif
