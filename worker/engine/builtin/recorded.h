/*
 * Answers of recorded sessions, found by the ids of their prompts: mode `recorded` of the built-in
 * engine. The bytes are exports as JSON (one or several, or one trajectory a line) or msgpack.
 */
#ifndef RG_ENGINE_RECORDED_H
#define RG_ENGINE_RECORDED_H

#include "common/base/err.h"
#include "worker/engine/pool/engine.h"
#include "worker/text/tokens/span.h"

struct recorded;
struct tokenizer;

/* One answer. Everything that it points to lives as long as its struct recorded. */
struct recorded_turn {
    struct str session;
    /* number of the turn in its trajectory, from 1; number of turns there */
    uint32_t number, n_turns;
    struct token_span prompt, ids;
    const float *logprobs; /* ids.n, or NULL if the export does not have them */
    enum logprob_basis basis;
    bool cut; /* the answer ended at its length limit */
    const struct engine_version *versions;
    size_t n_versions;
    struct recorded_turn *next; /* next turn with the same prompt, in the order of the bytes */
};

/* Reads exports. Returns -1 with ERR_CONFIG and the mistake. The bytes are not needed
 * afterwards. */
int recorded_new(struct str bytes, struct recorded **ret, struct err *e);
void recorded_free(struct recorded *r);

/* Returns the turn with exactly this prompt, or NULL. If there are several, each call returns the
 * next one, and the first after the last. */
const struct recorded_turn *recorded_next(struct recorded *r, struct token_span prompt);

/* For a prompt that recorded_next did not find: writes into e (ERR_ENGINE_REFUSED) where it first
 * differs from the most similar recorded prompt. */
void recorded_explain(const struct recorded *r, struct token_span prompt, const struct tokenizer *t,
                      struct err *e);

#endif
