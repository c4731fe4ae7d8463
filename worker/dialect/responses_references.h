/*
 * struct references: the item_reference items of one request. Each leads by its id to a stored
 * answer of the session, and to one item of it: a thought, a text, a call or a compaction.
 */
#ifndef RG_DIALECT_RESPONSES_REFERENCES_H
#define RG_DIALECT_RESPONSES_REFERENCES_H

#include <stdbool.h>

#include "common/base/map.h"
#include "common/base/str.h"
#include "common/codec/json.h"
#include "worker/dialect/dialect.h"

enum referenced_kind {
    REFERENCED_THOUGHT,
    REFERENCED_TEXT,
    REFERENCED_CALL,
    REFERENCED_COMPACTION
};

struct referenced_item {
    enum referenced_kind kind;
    struct str response; /* bare id of the answer that has the item */
    struct str text;     /* of a thought, a text or a compaction; empty: copied before */
    struct json call;
};

/* A zeroed struct has no references yet. */
struct references {
    struct map ids;    /* of all items that were referenced */
    struct map copied; /* ids of thoughts and texts without number, of calls without head */
    const struct json *counted; /* the answer that has n_blocks */
    size_t n_blocks;            /* of its thought */
};

/* Reports whether the item of a request is an item_reference. The type may be absent: then it has
 * an id, and no role and content. */
bool references_is_item(const struct json *item);

/* Returns the bare id of the answer that a whole item names, by its id or a thought's seal. Absent:
 * it names none. The answer may be unknown to the session. */
struct str references_answer(const struct json *item);

/* Reports whether the session has that answer. `past` may be NULL. */
bool references_is_stored(const struct dialect_past *past, struct str answer);

/* Finds the item that `id` names. An answer stores its thoughts as one text, and its texts as one:
 * the first reference to one of several gets all of it. Returns NULL, or what `id` must be. The id
 * must outlive the struct. */
const char *references_find(struct references *r, const struct dialect_past *past, struct str id,
                            struct referenced_item *ret);
void references_done(struct references *r);

#endif
