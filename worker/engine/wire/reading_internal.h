/*
 * struct reading from the inside (reading.h): for reading.c, reading_text.c and the fuzzer.
 */
#ifndef RG_WIRE_READING_INTERNAL_H
#define RG_WIRE_READING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/codec/json.h"
#include "common/net/sse.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/reading.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_reply.h"

struct remote;
struct upstream_text;
struct wire;

struct reading {
    const struct remote *remote;
    const struct wire *wire; /* wire of the remote */
    const struct engine_request *req;
    void (*delta)(void *ctx, const struct engine_delta *d);
    void *ctx;
    struct reply reply;
    struct fields fields;
    struct sse sse;
    struct buf id;      /* expected end of the answer's id; empty: none */
    bool echoes;        /* any different id belongs to a different request */
    bool echoed;        /* the answer had the expected id */
    bool taken;         /* a document was accepted */
    bool stray;         /* the answer's id belongs to a different request */
    bool experts;       /* routed experts were asked for */
    bool events;        /* the body is an event stream, else one document */
    struct buf word;    /* text kinds: the document; else an event that is not JSON */
    bool in_json;       /* inside an event that is JSON */
    bool json_complete; /* the document is complete */
    bool ended;         /* the last event has come */
    bool holds_back; /* tokens are no longer passed on as they come; number of those that are not */
    size_t back;
    /* for a request with images: the length that they became was compared with the formula */
    bool prompt_told;
    uint32_t drifted;           /* tokens of an accepted different prompt */
    bool all_sent;              /* [DONE] has come */
    struct upstream_text *text; /* owned, for text kinds; else NULL */
    struct engine_rows rows;    /* text kinds: logprobs of a whole answer */
    bool wants_rows;            /* the client wants them */
    bool parsed;                /* the document, or the event, was parsed into the next members */
    int parse_rc;
    struct err parse_err;
    struct arena doc_arena;          /* memory of the event */
    struct json messages;            /* messages of the event in normalised form (upstream_out.h) */
    struct engine_delta delta_read;  /* its logprobs */
    const struct json *told;         /* text kinds: engine_result.openai */
    struct arena told_arena;         /* memory of `told` */
    struct engine_version *versions; /* memory of the version spans */
    uint64_t bytes;
    uint64_t max_bytes; /* limit of one document, or of all events of a text kind; 0: none */
};

/* Checks the id in the present document. Returns MORE, STRAY, or -1 and e if earlier documents were
 * accepted. */
int reading_check_id(struct reading *r, struct err *e);

/* Reads a complete event of a text kind (wire->text), which is in r->word, as a tree. Returns MORE,
 * TOLD, or -1 and e. In reading_text.c. */
int reading_text_event(struct reading *r, struct err *e);

/* Does the same for the only document, but never returns LONG. */
int reading_text_whole(struct reading *r, struct err *e);

/* Ends a stream. Passes on data other than its deltas (r->told). Returns -1 and e if it must not
 * end like this. */
int reading_text_end(struct reading *r, struct err *e);

#endif
