/*
 * struct engine_work: work of an adapter that would hold the loop, done by a helper thread. A task
 * waits for the thread. Pools without tasks (engine_options.tasks) do such work on the loop.
 */
#ifndef RG_ENGINE_ENGINE_WORK_H
#define RG_ENGINE_ENGINE_WORK_H

#include <stdbool.h>

#include "common/base/str.h"

struct task;
struct tasks;

/* STUCK: the thread hangs, and nothing that it uses may be freed, the work included. */
enum engine_work_end { ENGINE_WORK_DONE, ENGINE_WORK_FAILED, ENGINE_WORK_STUCK };

/* Embedded in its owner, which sets the first four members and zeroes the others. */
struct engine_work {
    void (*run)(struct engine_work *w); /* in the thread: uses what the owner alone has */
    void (*done)(struct engine_work *w, enum engine_work_end end); /* on the loop */
    void (*drop)(struct engine_work *w); /* instead of done, after engine_work_drop: frees it */
    bool is_long; /* a thread needs several milliseconds for it: another one stays free */

    struct task *task; /* NULL: no thread has it */
    struct str lane;
    bool dropped;
};

/* `done` follows, maybe at once. Work of one session is done in order. */
void engine_work_begin(struct engine_work *w, struct tasks *tasks, struct str session_id);

/* The owner does not need it any more: `drop` follows, maybe at once. Not after `done`. */
void engine_work_drop(struct engine_work *w);

#endif
