/*
 * The switch between stacks (task_switch.c), and the frame that the first switch loads.
 */
#ifndef RG_OS_TASK_SWITCH_H
#define RG_OS_TASK_SWITCH_H

struct task_stack;

/* Saves the registers that a callee must preserve on this stack and the stack's pointer in *from.
 * Continues on the stack `to`. */
void task_stack_switch(void **from, void *to);

/* Calls task_stack_begin with the argument word of the first frame. */
void task_stack_first(void);
void task_stack_begin(struct task_stack *s);

/* Number of words in a saved frame. On x86-64 it is odd, so that the stack is aligned as after a
 * call. */
#if defined(__x86_64__)
enum { SAVED_WORDS = 7, ARGUMENT_WORD = 3, ENTRY_WORD = 6 };
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20, ARGUMENT_WORD = 0, ENTRY_WORD = 11 };
#endif

#endif
