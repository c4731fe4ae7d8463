/*
 * struct pretok: the "pre_tokenizer" of a tokenizer.json as a flat list of stages. A stage cuts a
 * piece of text into smaller ones (Split and its special cases) or rewrites it (prefix space,
 * Metaspace, byte-level alphabet). Pieces go through the stages depth first, so no list of pieces
 * is ever built. The pieces that leave the last stage are the words for the model.
 *
 * A ByteLevel at the end is not run: words stay raw bytes and byte_level_last is set, because the
 * model maps bytes itself. Read-only after parsing.
 */
#ifndef RG_TOKENS_PRETOK_H
#define RG_TOKENS_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct json;
struct pattern;
struct pretok_stage;
struct regex_scratch;

enum { PRETOK_STAGES_MAX = 256 };

struct pretok {
    struct pretok_stage *at;
    size_t n, cap;
    bool byte_level_last;
};

/* Reports whether no text is dropped. */
bool pretok_keeps_all(const struct pretok *p);

/* A piece of text; head as in normalizer.h. */
struct pretok_piece {
    struct str text;
    size_t head;
};

struct pretok_scratch {
    struct buf *bufs; /* one for each stage */
    size_t n;
    struct regex_scratch *regex; /* borrowed; all stages use its budget */
};

/* Parses the stages. v NULL or null: no stages. On error p is as after pretok_done. */
int pretok_parse(struct pretok *p, const struct json *v, struct err *e);
void pretok_done(struct pretok *p);

/* Makes the ByteLevel at the end run. */
void pretok_keep_byte_level(struct pretok *p);

void pretok_patterns(const struct pretok *p, void (*see)(void *, const struct pattern *),
                     void *arg);

void pretok_scratch_init(struct pretok_scratch *s, const struct pretok *p,
                         struct regex_scratch *regex);
void pretok_scratch_done(struct pretok_scratch *s);

/* Calls `word` (0 / -1) with each word of a piece (not empty), in order. Returns -1 if `word` did,
 * or if the budget is exhausted; then the error names the stage. */
int pretok_run(const struct pretok *p, struct pretok_scratch *s, struct pretok_piece piece,
               int (*word)(void *arg, struct str word, struct err *e), void *arg, struct err *e);

#endif
