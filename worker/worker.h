/*
 * The session-worker process: holds sessions, serves the data plane and the control plane on its
 * unix socket, calls the engines, writes the journal. worker_load runs once in the supervisor
 * before the forks; worker_run is the main function of each child.
 */
#ifndef RG_WORKER_WORKER_H
#define RG_WORKER_WORKER_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct config;
struct heritage;
struct heritage_build;
struct model;

/* Appends a line to `mistakes` for each setting with which a worker could not start, and to
 * `warnings`, if there is no such setting, for each that has no effect or is doubtful. Loads the
 * model for this, which takes seconds, if `model` is set or there is a mistake anyway. */
void worker_check(const struct config *c, bool model, struct buf *mistakes, struct buf *warnings);

/* Tries whether a --sink would take sessions now. Blocks for some seconds. */
int worker_reach_sink(const char *sink, struct err *e);

/* Loads the configured model. `remark` gets a few words for the start-up line. */
int worker_load(const struct config *c, const struct model **ret, struct buf *remark,
                struct err *e);
void worker_unload(const struct model *m);

/* Fills in the model's fingerprint and the versions of records that this build reads. */
void worker_describe(const struct model *m, struct heritage_build *ret);

/* Appends how far the model is supported, as one line without line end. Returns false if there is a
 * reservation. */
bool worker_judge_model(const struct model *m, struct buf *out);

/* Runs a worker after the fork: serves until the supervisor orders it to drain, lets running calls
 * end within the grace time, flushes its journals and returns the exit status. */
int worker_run(const struct heritage *h);

#endif
