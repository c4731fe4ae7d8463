/*
 * struct drift: what a re-rendering of the same messages would have got wrong. The canonical
 * rendering, encoded, is compared with the true ids between special tokens; nothing is repaired.
 */
#ifndef RG_EXPORT_DRIFT_H
#define RG_EXPORT_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/model/model.h"
#include "worker/tokens/span.h"

enum drift_kind {
    DRIFT_SPECIAL_TOKEN_COUNT,
    DRIFT_SPECIAL_TOKEN_TYPE,
    DRIFT_NON_ASSISTANT_TEXT,
    DRIFT_ASSISTANT_TEXT,
};

struct drift {
    bool audited;
    uint32_t count;
    enum drift_kind first; /* valid when count > 0 */
    uint32_t position;     /* of the first one, in the true ids */
};

const char *drift_kind_name(enum drift_kind k);

/* mask: one byte per true id, non-zero where the model wrote it. A rendering that fails leaves
 * audited false. */
void drift_audit(const struct model *m, struct model_scratch *scratch, const struct chat *chat,
                 struct token_span ids, const uint8_t *mask, struct drift *ret);

#endif
