/*
 * struct drift_audit: the comparison that finds a drift (drift.h), while it is under way.
 */
#ifndef RG_EXPORT_DRIFT_AUDIT_H
#define RG_EXPORT_DRIFT_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "worker/text/tokens/span.h"

struct chat;
struct drift;
struct model;
struct model_scratch;

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

/* Compares and frees. ret->places must be set or NULL. mask: one byte per true id, non-zero where
 * the model wrote it. A rendering that failed leaves audited false. */
void drift_finish(struct drift_audit *a, struct token_span ids, const uint8_t *mask,
                  struct drift *ret);

/* Gives up; also after drift_finish. */
void drift_drop(struct drift_audit *a);

#endif
