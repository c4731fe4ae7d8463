/*
 * struct drift_audit: the comparison that finds a drift (drift.h), in steps.
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

/* State of one audit. Encoding a long chat takes milliseconds, so it is done in steps. */
struct drift_audit {
    const struct model *model;
    struct model_scratch *scratch;
    struct buf text; /* rendered text */
    size_t at;
    struct token_vec canonical;
    bool failed;
};

/* Renders the chat, which is not needed afterwards. */
void drift_start(struct drift_audit *a, const struct model *m, struct model_scratch *scratch,
                 const struct chat *chat);

/* Encodes the next step. Returns true while steps are left. */
bool drift_next(struct drift_audit *a);

/* Compares and frees. ret->places must be set or NULL. mask: one byte per true id, non-zero where
 * the model wrote it. If the rendering failed, `audited` stays false. */
void drift_finish(struct drift_audit *a, struct token_span ids, const uint8_t *mask,
                  struct drift *ret);

/* Abandons the audit. May also be called after drift_finish. */
void drift_drop(struct drift_audit *a);

#endif
