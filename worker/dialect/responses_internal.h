/*
 * struct responses_writer's body, for responses_writer.c (events), responses_items.c (items as
 * JSON) and responses_object.c (the response around them).
 */
#ifndef RG_DIALECT_RESPONSES_INTERNAL_H
#define RG_DIALECT_RESPONSES_INTERNAL_H

#include "common/base/attrs.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/responses_tools.h"
#include "worker/dialect/writers.h"

struct call_usage;

enum item {
    ITEM_NONE,
    ITEM_REASONING,
    ITEM_MESSAGE,
    ITEM_COMPACTION, /* in place of all others */
    ITEM_CALL,       /* this and the later ones are calls of tools */
    ITEM_CUSTOM,
    ITEM_SEARCH,
    ITEM_KINDS
};

struct responses_writer {
    struct writer w;             /* first */
    struct response_tools tools; /* all that the request brought */
    int64_t sequence;
    enum item open;
    uint32_t n_items;                /* finished ones */
    uint32_t of_kind[ITEM_KINDS];    /* begun ones */
    struct str id;                   /* id of the open item */
    struct grown text;               /* text of the open item: text, thought or arguments */
    struct str call_id, name, space; /* the open call; space absent: none */
    struct str seal;                 /* the upstream's of the open thought; absent: none */
    struct told_seals told;
    struct grown blank;  /* white space that no message was opened for yet */
    struct grown output; /* finished items, JSON with commas */
    struct grown
        logprobs; /* logprobs of all tokens so far, JSON with commas between those of one message */
    size_t logprobs_told;   /* bytes of them that the messages before have */
    const char *incomplete; /* why the answer is; NULL: it is whole */
    bool compacts;          /* the answer is one item: what the model wrote, as a compaction */
    bool alone;             /* answer of /responses/compact: it is not a response object */
};

/* Whether the request asks for encrypted_content of thoughts. */
bool responses_wants_encrypted(const struct responses_writer *rw);

/* The open item, begun or done. */
void responses_item(struct responses_writer *rw, struct json_out *o, bool done);
/* Its one part with this text. */
void responses_part(struct responses_writer *rw, struct json_out *o, struct str text);

/* The member of a stored request that asked for a compaction. */
#define COMPACTED "rollgate.compacted"

/* Writes the answer of /responses/compact. */
void compaction_object(struct responses_writer *rw, struct json_out *o,
                       const struct call_usage *usage);

/* Returns the i-th member of a request that is recorded with its call, most of them to be echoed;
 * NULL after the last. */
const char *responses_echoed(size_t i);

/* The response with the items that are done; usage and e may be NULL. */
void responses_object(struct responses_writer *rw, struct json_out *o, const char *status,
                      const struct call_usage *usage, const struct err *e);

#endif
