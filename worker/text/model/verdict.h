/*
 * The conclusions of `rollgate check`: which turns stay as written, whether calls are read back,
 * and what would improve that: other template variables, a different family, a different parser.
 * Each remedy is tried, not guessed.
 */
#ifndef RG_MODEL_VERDICT_H
#define RG_MODEL_VERDICT_H

#include "worker/text/model/model_internal.h"

/* Appends what the verdict means for a training run, in one to three lines. */
void verdict_explain(const struct model *m, struct buf *out);

/* Appends the verdict as lines of text. */
void verdict_report(const struct model *m, struct buf *out);

#endif
