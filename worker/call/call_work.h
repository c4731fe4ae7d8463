/*
 * struct call_work: the long work of a model call, its step RENDER (step_render.c). In the call's
 * arena.
 */
#ifndef RG_CALL_CALL_WORK_H
#define RG_CALL_CALL_WORK_H

struct arena;
struct call_work;
struct model_call;

/* A new one, in the arena, of the call. */
struct call_work *call_work_new(struct arena *arena, struct model_call *t);

/* The call ends: `let_go` is called when no helper reads it any more, maybe at once; never, when
 * the helper is stuck. */
void call_work_drop(struct call_work *w, void (*let_go)(struct model_call *t));

#endif
