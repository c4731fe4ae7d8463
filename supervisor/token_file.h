/*
 * struct token_file: the parsed answer of GET /sessions/{id}/tokens: one branch, its tokens and
 * what is known of each.
 */
#ifndef RG_SUPERVISOR_TOKEN_FILE_H
#define RG_SUPERVISOR_TOKEN_FILE_H

#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"

struct err;
struct json;

/* An id of the vocabulary and its text; absent: the token is not a whole character. */
struct token_text {
    int32_t id;
    struct str text;
};

struct token_file {
    struct arena arena;
    const struct json *trajectory;       /* messages, turns ...; NULL: the session has no branch */
    const struct token_text *vocabulary; /* sorted by id */
    size_t n_vocabulary;
    const int32_t *ids;    /* of the prompt, then of the response */
    const float *logprobs; /* the sampler's, for the response; or NULL */
    const float *trained;  /* a trainer's, NaN: not reported; or NULL */
    uint32_t total, n;     /* number of all ids; number of those of the response */
};

/* Reads the bytes, which stay borrowed. Returns -1 if they have a different form. Call
 * token_file_done in both cases. */
int token_file_read(struct token_file *f, struct str bytes, struct err *e);
void token_file_done(struct token_file *f);

/* Returns the text of an id; absent: the token is not a whole character. */
struct str token_file_text(const struct token_file *f, int32_t id);

#endif
