/*
 * struct drift: what a re-rendering of the same messages would have got wrong. The canonical
 * rendering, encoded, is compared with the true ids between special tokens; nothing is repaired.
 */
#ifndef RG_EXPORT_DRIFT_H
#define RG_EXPORT_DRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "worker/tokens/span.h"

struct chat;
struct model;
struct model_scratch;

enum drift_kind {
    DRIFT_SPECIAL_TOKEN_COUNT,
    DRIFT_SPECIAL_TOKEN_TYPE,
    DRIFT_NON_ASSISTANT_TEXT,
    DRIFT_ASSISTANT_TEXT,
    DRIFT_KIND_COUNT
};

struct drift {
    bool audited;
    uint32_t count;
    enum drift_kind first; /* valid when count > 0 */
    uint32_t position;     /* of the first one, in the true ids */
};

const char *drift_kind_name(enum drift_kind k);

/* One audit under way: a long chat takes milliseconds, so it is encoded in parts. */
struct drift_audit {
    const struct model *model;
    struct model_scratch *scratch;
    struct buf text; /* the rendering */
    size_t at;
    struct token_vec canonical;
    bool failed;
};

/* Renders; chat is not needed afterwards. */
void drift_start(struct drift_audit *a, const struct model *m, struct model_scratch *scratch,
                 const struct chat *chat);

/* Encodes a part; true while there is more. */
bool drift_next(struct drift_audit *a);

/* Compares and frees. mask: one byte per true id, non-zero where the model wrote it. A rendering
 * that failed leaves audited false. */
void drift_finish(struct drift_audit *a, struct token_span ids, const uint8_t *mask,
                  struct drift *ret);

/* Gives up; also after drift_finish. */
void drift_drop(struct drift_audit *a);

#endif
