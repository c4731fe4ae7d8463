/*
 * struct responses_writer: the state that responses_writer.c (events), responses_items.c (items as
 * JSON) and responses_object.c (the response object) share.
 */
#ifndef RG_DIALECT_RESPONSES_INTERNAL_H
#define RG_DIALECT_RESPONSES_INTERNAL_H

#include "common/base/attrs.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/responses_tools.h"
#include "worker/dialect/writers.h"

enum item {
    ITEM_NONE,
    ITEM_REASONING,
    ITEM_MESSAGE,
    ITEM_COMPACTION, /* replaces all other items */
    ITEM_CALL,       /* this and the following kinds are calls */
    ITEM_CUSTOM,
    ITEM_SEARCH,
    ITEM_KINDS
};

struct responses_writer {
    struct writer w;             /* must be first */
    struct response_tools tools; /* all tools of the request */
    int64_t sequence;
    enum item open;
    uint32_t n_items;                /* number of finished items */
    uint32_t of_kind[ITEM_KINDS];    /* number of begun items, by kind */
    struct str id;                   /* id of the open item */
    struct grown text;               /* text of the open item: text, thought or arguments */
    struct str call_id, name, space; /* of the open call; space absent: no namespace */
    struct str seal;                 /* the upstream's seal of the open thought; absent: no seal */
    struct told_seals told;
    struct grown blank;     /* white space that has not opened a message yet */
    struct grown output;    /* finished items as JSON, separated by commas */
    struct grown logprobs;  /* JSON of all logprobs so far; commas within a message */
    size_t logprobs_told;   /* bytes of `logprobs` that earlier messages have */
    const char *incomplete; /* why the answer is incomplete; NULL: it is complete */
    bool compacts;          /* the answer is one compaction item with the model's text */
    bool alone;             /* answer of /responses/compact, which is not a response object */
};

/* Reports whether the request asks for encrypted_content of thoughts. */
bool responses_wants_encrypted(const struct responses_writer *rw);

/* Writes the open item. done: with its text, otherwise empty and in progress. */
void responses_item(struct responses_writer *rw, struct json_out *o, bool done);
/* Writes the open item's single content part with this text. */
void responses_part(struct responses_writer *rw, struct json_out *o, struct str text);

/* Name of a recorded member: the request asked for a compaction. */
#define COMPACTED "rollgate.compacted"

/* Writes the answer of /responses/compact. */
void compaction_object(struct responses_writer *rw, struct json_out *o,
                       const struct call_usage *usage);

/* Returns the i-th member of a request that is recorded with its call, or NULL after the last. Most
 * of them are echoed. */
const char *responses_echoed(size_t i);

/* Writes the response object with the finished items. usage and e may be NULL. */
void responses_object(struct responses_writer *rw, struct json_out *o, const char *status,
                      const struct call_usage *usage, const struct err *e);

#endif
