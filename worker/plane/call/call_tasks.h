/*
 * What helper threads and tasks of a worker share (call_tasks.c).
 */
#ifndef RG_CALL_CALL_TASKS_H
#define RG_CALL_CALL_TASKS_H

#include <stdbool.h>

struct call_env;
struct helper_job;
struct work_tools;

/* Tasks have env's helper threads from now on; `own` (copied) is what the loop itself works with.
 */
void call_tasks_use_helpers(struct call_env *env, const struct work_tools *own);

/* Counts a job that has ended, or whose thread hangs, in the metrics. */
void call_count_job(void *env, const struct helper_job *j, bool hung);

#endif
