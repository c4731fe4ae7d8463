/*
 * Appends the events that viewers of sessions get (docs/http.md) to `out`, as text. Pure.
 */
#ifndef RG_CONTROL_EVENT_TEXTS_H
#define RG_CONTROL_EVENT_TEXTS_H

#include <stdbool.h>

#include "common/base/str.h"

struct buf;
struct call_place;
struct call_tokens;
struct tokenizer;

/* Writes "session_gone": the session no longer exists. ended: it had ended before. */
void event_put_gone(struct str id, bool ended, struct buf *out);

/* Writes "call": a call of the session began, with its position; or "call_end": the call has
 * ended. */
void event_put_call(const struct call_place *c, bool ended, struct buf *out);

/* Writes "tokens": new tokens of a sample, or for a viewer that joined late, all so far. */
void event_put_tokens(const struct tokenizer *tok, const struct call_tokens *k, struct buf *out);

#endif
