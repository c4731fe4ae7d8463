/* Functions that send the events of a model call to its listeners. Each listener gets all events,
 * no matter when it joined. */
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

/* Sends each event to all listeners of a call. An answer_sink whose ctx is the call. */
extern const struct answer_sink call_listeners_sink;

void call_listeners_add(struct model_call *t, struct call_listener *l);

/* Returns the number of listeners: at most MODEL_CALL_LISTENERS_MAX. */
size_t call_listeners_count(const struct model_call *t);

/* Sends a new listener, in the running task, the events that the other listeners have had before.
 * The call sends its end only afterwards: FINISH waits. */
MAY_PAUSE void call_listeners_repeat(struct model_call *t, struct call_listener *l);

bool call_listeners_behind(const struct model_call *t);

void call_listeners_drop(struct model_call *t, struct call_listener *l);

/* Detaches up to `most` listeners and sends them `failed`. */
void call_listeners_fail(struct model_call *t, const struct err *e, size_t most);

/* Detaches all listeners and sends them `finish`. */
void call_listeners_finish(struct model_call *t, const struct finished_answer *answers, size_t n);

#endif
