/*
 * struct reading from the inside (reading.h): for reading.c, reading_text.c and the fuzzer.
 */
#ifndef RG_WIRE_READING_INTERNAL_H
#define RG_WIRE_READING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/codec/json.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/reading.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_reply.h"

struct engine_version;
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
    struct buf id;      /* end of the expected id of the answer; empty: none */
    bool echoes;        /* any other id is another request's */
    bool echoed;        /* the expected id was there */
    bool taken;         /* a document was checked */
    bool stray;         /* its id is another request's */
    bool experts;       /* routed experts are asked for */
    bool events;        /* an event stream, else one document */
    struct buf word;    /* kinds of text: the document; else an event that is no JSON */
    bool in_json;       /* inside an event that is JSON */
    bool json_complete; /* the document has its end */
    bool ended;         /* the last event was there */
    bool
        holds_back; /* tokens are no longer passed on as they come; number of those that are not: */
    size_t back;
    bool prompt_told; /* asked with images: what they became was held against the formula */
    uint32_t drifted; /* tokens that another prompt has, which was let */
    bool all_sent;    /* [DONE] was there */
    struct upstream_text *text; /* kinds of text: its own; else NULL */
    struct engine_rows rows;    /* kinds of text: the logprobs of a whole answer, */
    bool wants_rows;            /* for the client */
    bool parsed;                /* the document, or the event, is read, with: */
    int parse_rc;
    struct err parse_err;
    struct arena doc_arena;          /* memory of that event, */
    struct json messages;            /* messages of the event, in the one form (upstream_out.h) */
    struct engine_delta delta_read;  /* its logprobs */
    const struct json *told;         /* kinds of text: engine_result.openai */
    struct arena told_arena;         /* where it lies */
    struct engine_version *versions; /* memory of the replay data */
    uint64_t bytes;
    uint64_t max_bytes; /* limit of one document, or of all events of a kind of text; 0: none */
};

/* The id in the document at hand: MORE, STRAY, or -1 and e when documents before it were taken. */
int reading_check_id(struct reading *r, struct err *e);

/* Reads a document of a kind of text (wire->text), in reading_text.c: each whole, as a tree. An
 * event is complete, in r->word: MORE, TOLD, -1 and e. */
int reading_text_event(struct reading *r, struct err *e);

/* The one document is complete: the same but for LONG. */
int reading_text_whole(struct reading *r, struct err *e);

/* Ends a stream: data next to its deltas is passed on (r->told). -1 and e: it must not end so. */
int reading_text_end(struct reading *r, struct err *e);

#endif
