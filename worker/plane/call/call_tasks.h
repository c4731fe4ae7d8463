/*
 * Helper threads of a worker's tasks, and the metrics of their jobs.
 */
#ifndef RG_CALL_CALL_TASKS_H
#define RG_CALL_CALL_TASKS_H

struct call_env;
struct work_tools;

/* Gives all tasks env's helper threads. `own` (copied) are the tools that the loop itself uses. */
void call_tasks_use_helpers(struct call_env *env, const struct work_tools *own);

#endif
