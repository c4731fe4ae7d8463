/*
 * struct token_file: the answer of GET /sessions/{id}/tokens, read: one branch, its tokens and what
 * is known of each.
 */
#ifndef RG_SUPERVISOR_TOKEN_FILE_H
#define RG_SUPERVISOR_TOKEN_FILE_H

#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"

struct err;
struct json;

/* An id of the vocabulary and its text; absent: it is no whole character. */
struct token_text {
    int32_t id;
    struct str text;
};

struct token_file {
    struct arena arena;
    const struct json *trajectory;       /* messages, turns ...; NULL: there is no branch */
    const struct token_text *vocabulary; /* by id */
    size_t n_vocabulary;
    const int32_t *ids;    /* prompt, then response */
    const float *logprobs; /* sampler's, of the response; or NULL */
    const float *trained;  /* a trainer's, NaN: not reported; or NULL */
    uint32_t total, n;     /* all ids; those of the response */
};

/* Reads the bytes, which it borrows. -1: they have a different form. token_file_done either way. */
int token_file_read(struct token_file *f, struct str bytes, struct err *e);
void token_file_done(struct token_file *f);

/* The text of an id; absent: it is no whole character. */
struct str token_file_text(const struct token_file *f, int32_t id);

#endif
