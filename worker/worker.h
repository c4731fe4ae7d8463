/*
 * The session-worker process: holds sessions, serves the data and control plane on its unix socket,
 * talks to the engines, keeps the journal. worker_load runs once in the supervisor before the
 * forks; worker_run is the main of each child.
 */
#ifndef RG_WORKER_WORKER_H
#define RG_WORKER_WORKER_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct config;
struct heritage;
struct model;

/* Appends a line to `mistakes` for each setting that a worker could not start with, and to
 * `warnings` for each that will have no effect. The model is loaded to see, which takes a moment,
 * if `model` or when there is a mistake anyway. */
void worker_check(const struct config *c, bool model, struct buf *mistakes, struct buf *warnings);

/* Loads the configured model; `remark` gets a few words for the start-up line. */
int worker_load(const struct config *c, const struct model **ret, struct buf *remark,
                struct err *e);
void worker_unload(const struct model *m);

/* Appends what the model is good for, as one line without its end. False: with a reservation. */
bool worker_judge_model(const struct model *m, struct buf *out);

/* The body of a worker after the fork: serves until it is told to drain, lets running calls finish
 * within the grace time, flushes its journals and returns the exit status. */
int worker_run(const struct heritage *h);

#endif
