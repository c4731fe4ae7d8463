/*
 * struct call_work: the long work of a model call, of its steps RENDER and PROMPT, one after the
 * other. In the call's arena.
 */
#ifndef RG_CALL_CALL_WORK_H
#define RG_CALL_CALL_WORK_H

struct arena;
struct call_work;
struct err;
struct long_work;
struct work_tools;
struct model_call;

/* A new one, in the arena, of the call. */
struct call_work *call_work_new(struct arena *arena, struct model_call *t);

/* The work of a step of the call, which sets the rest (is_long) and begins it. */
struct long_work *call_work_begin(struct model_call *t,
                                  int (*run)(struct long_work *w, struct work_tools *tools,
                                             struct err *e),
                                  void (*done)(struct long_work *w, const struct err *e));

/* For these functions: the call whose work it is. */
struct model_call *call_work_of(struct long_work *w);

/* The call ends: `let_go` is called when no helper reads it any more, maybe at once; never, when
 * the helper is stuck. */
void call_work_drop(struct call_work *w, void (*let_go)(struct model_call *t));

#endif
