/*
 * struct reading: the body of one engine's answer while it is read: bytes in, one struct reply out.
 * The body is one JSON document or an event stream of them; a wire's table says which fields
 * matter, and no tree is built. Kinds of text (wire->text) get each document whole. Pure but for
 * the delta callback: no connection, no log, no clock.
 */
#ifndef RG_WIRE_READING_H
#define RG_WIRE_READING_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_reply.h"

struct remote;
struct sse;
struct upstream_text;
struct wire;

struct reading {
    const struct remote *remote;
    const struct wire *wire; /* the remote's */
    const struct engine_request *req;
    void (*delta)(void *ctx, const struct engine_delta *d);
    void *ctx;
    struct reply reply;
    struct fields fields;
    struct sse *sse;    /* own */
    bool events;        /* an event stream, else one document */
    struct buf word;    /* kinds of text: the document; else an event that is no JSON */
    bool in_json;       /* inside an event that is JSON */
    bool json_complete; /* the document has its end */
    bool ended;         /* the last event was there */
    bool prompt_told;   /* asked with images: what they became was held against the formula */
    uint32_t drifted;   /* tokens that another prompt has, which was let */
    bool all_sent;      /* [DONE] was there */
    struct upstream_text *text; /* kinds of text: its own; else NULL */
    uint64_t bytes;
    uint64_t max_bytes; /* of one document, or of all events of a kind of text; 0: no limit */
};

enum { READING_MORE, READING_TOLD /* the answer reports an error: reply.status and .message */ };

void reading_init(struct reading *r, const struct remote *remote, const struct wire *wire,
                  const struct engine_request *q);
void reading_done(struct reading *r);

/* The next bytes: a READING_ value, or -1 ERR_ENGINE_INVALID that says what is wrong. */
int reading_feed(struct reading *r, struct str bytes, struct err *e);

/* No more bytes come: 0 with the whole answer in r->reply, else as reading_feed. */
int reading_end(struct reading *r, struct err *e);

/* After reading_end failed: whether the end of the answer is what is missing. */
bool reading_cut(const struct reading *r);

/* The answer as the pool hears of it, borrowed from r. `versions` has room for one more than
 * reply.spans.n; times are not filled. */
struct engine_result reading_result(struct reading *r, struct engine_version *versions);

#endif
