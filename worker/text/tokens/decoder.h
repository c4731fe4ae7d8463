/*
 * struct decoder: the "decoder" of a tokenizer.json as a flat list of steps. Each step is a
 * transducer, so that decoding a whole list and decoding ids as they arrive are the same code. Up
 * to Fuse or ByteLevel a step gets whole tokens. After it there is only one token, which comes in
 * fragments. struct decoding is the running state. The decoder is read-only after parsing.
 */
#ifndef RG_TOKENS_DECODER_H
#define RG_TOKENS_DECODER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct decoder_step;
struct json;
struct pattern;
struct regex_scratch;

struct decoder {
    struct decoder_step *at;
    size_t n, cap;
    bool byte_level; /* the only step is ByteLevel, so tokens may be given as bytes */
};

/* Parses the steps. v NULL or null: tokens are joined with blanks. On error d is as after
 * decoder_done. */
int decoder_parse(struct decoder *d, const struct json *v, struct err *e);
void decoder_done(struct decoder *d);

void decoder_patterns(const struct decoder *d, void (*see)(void *, const struct pattern *),
                      void *arg);

struct decoding_step {
    struct buf held; /* bytes that cannot be passed on yet */
    struct buf text; /* text that this step has just made */
    size_t count;    /* number of tokens seen, or of characters stripped */
    bool closed;     /* nothing more is stripped at the front */
};

struct decoding {
    const struct decoder *decoder;
    struct decoding_step *steps;
    struct regex_scratch *regex;
    struct buf *out; /* set by the functions below */
};

void decoding_init(struct decoding *g, const struct decoder *d);
void decoding_done(struct decoding *g);

/* Reports whether a fragment of a character waits for its rest. Only for a byte_level decoder. */
static inline bool decoding_waits(const struct decoding *g)
{
    return g->steps[0].held.len > 0;
}

/* Decodes one token as the file writes it (byte_level: its bytes). Appends what is certain to
 * out. */
void decoding_feed(struct decoding *g, struct str token, struct buf *out);

/* Ends the tokens: appends the rest and resets g. */
void decoding_finish(struct decoding *g, struct buf *out);

#endif
