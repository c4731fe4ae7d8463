/*
 * Who hears of a model call: its listeners, each of which is told all, whenever it came.
 */
#ifndef RG_CALL_CALL_LISTENERS_H
#define RG_CALL_CALL_LISTENERS_H

#include <stddef.h>

struct answer_sink;
struct call_listener;
struct err;
struct finished_answer;
struct model_call;

/* The fan-out: an answer_sink whose ctx is the call. */
extern const struct answer_sink call_listeners_sink;

void call_listeners_add(struct model_call *t, struct call_listener *l);
void call_listeners_repeat(struct model_call *t, struct call_listener *l);
void call_listeners_drop(struct model_call *t, struct call_listener *l);

/* Ends all listeners with failed / finish; they are detached first. */
void call_listeners_fail(struct model_call *t, const struct err *e);
void call_listeners_finish(struct model_call *t, const struct finished_answer *answers, size_t n);

#endif
