/*
 * struct task_stack: a stack with a guard page, and the switch to and from it. One stack runs one
 * function after the other, so that it can be pooled under each sanitizer.
 */
#ifndef RG_OS_TASK_STACK_H
#define RG_OS_TASK_STACK_H

#include <stdbool.h>
#include <stddef.h>

struct task_stack;

/* Makes a stack. `run` is called on it at the first switch, and at each switch after it has
 * returned. */
struct task_stack *task_stack_new(void (*run)(void *ctx), void *ctx);

/* Frees the stack. Its function must not be running. */
void task_stack_free(struct task_stack *s);

/* Runs the stack until it calls task_stack_leave or `run` returns. Calls nest. */
void task_stack_enter(struct task_stack *s);

/* Switches from the stack s back to the caller of task_stack_enter. Runs on s. */
void task_stack_leave(struct task_stack *s);

/* Describes the task that overflowed its stack, for the last words of the process. `describe`
 * returns the text for the running task and its stack, or NULL. It is called in a signal handler.
 */
struct task_overflow {
    const struct task_stack *stack;
    const char *owner;
    size_t owner_len;
};

void task_stack_watch(bool (*describe)(struct task_overflow *ret));

#endif
