/* The listeners of a model call. Each gets all events, whenever it came. */
#ifndef RG_CALL_CALL_LISTENERS_H
#define RG_CALL_CALL_LISTENERS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/attrs.h"

struct answer_sink;
struct call_listener;
struct err;
struct finished_answer;
struct model_call;

/* The fan-out: an answer_sink whose ctx is the call. */
extern const struct answer_sink call_listeners_sink;

void call_listeners_add(struct model_call *t, struct call_listener *l);

/* How many there are: at most MODEL_CALL_LISTENERS_MAX. */
size_t call_listeners_count(const struct model_call *t);

/* Sends a new one what the others have had before, in the running task. The call does not send its
 * end before: FINISH waits. */
MAY_PAUSE void call_listeners_repeat(struct model_call *t, struct call_listener *l);

bool call_listeners_behind(const struct model_call *t);

void call_listeners_drop(struct model_call *t, struct call_listener *l);

/* Ends listeners, so many at most, with `failed`; they are detached first. */
void call_listeners_fail(struct model_call *t, const struct err *e, size_t most);

/* Ends all listeners with `finish`, likewise. */
void call_listeners_finish(struct model_call *t, const struct finished_answer *answers, size_t n);

#endif
