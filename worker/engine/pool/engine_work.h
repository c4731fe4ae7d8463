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

/* STUCK: the thread hangs, and nothing that it uses may be freed, including the work. */
enum engine_work_end { ENGINE_WORK_DONE, ENGINE_WORK_FAILED, ENGINE_WORK_STUCK };

/* Embedded in its owner, which sets the first four members and zeroes the others. */
struct engine_work {
    /* in the thread: may use only what belongs to the owner alone */
    void (*run)(struct engine_work *w);
    void (*done)(struct engine_work *w, enum engine_work_end end); /* called on the loop */
    /* called instead of done after engine_work_drop; frees the work */
    void (*drop)(struct engine_work *w);
    /* a thread needs several milliseconds for it, so one thread must stay free for others */
    bool is_long;

    struct task *task; /* task that waits for the thread; NULL: none */
    struct str lane;
    bool dropped;
};

/* Starts the work. `done` follows, maybe at once. Work of one session is done in order. */
void engine_work_begin(struct engine_work *w, struct tasks *tasks, struct str session_id);

/* Abandons the work, which its owner does not need any longer. `drop` follows, maybe at once. Not
 * after `done`. */
void engine_work_drop(struct engine_work *w);

#endif
