/*
 * The events that viewers of sessions get (docs/http.md), as text behind what `out` has. Pure.
 */
#ifndef RG_CONTROL_EVENT_TEXTS_H
#define RG_CONTROL_EVENT_TEXTS_H

#include <stdbool.h>

#include "common/base/str.h"

struct buf;
struct call_place;
struct call_tokens;
struct tokenizer;

/* "session_gone": the session is not here any more; ended: it had ended. */
void event_put_gone(struct str id, bool ended, struct buf *out);

/* "call": a call of the session began, and where; "call_end": it has ended. */
void event_put_call(const struct call_place *c, bool ended, struct buf *out);

/* Writes "tokens": new tokens of a sample, or, for a viewer that came late, all so far. */
void event_put_tokens(const struct tokenizer *tok, const struct call_tokens *k, struct buf *out);

#endif
