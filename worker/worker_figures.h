/*
 * The figures of a worker, in metrics and on the board that routers and /ready read.
 */
#ifndef RG_WORKER_WORKER_FIGURES_H
#define RG_WORKER_WORKER_FIGURES_H

#include "common/serve/server.h"

struct worker_state;

/* Publishes the figures. Called once a second, and when an engine becomes ready or fails. b: bytes
 * that the worker's server holds now. */
void worker_figures_publish(const struct worker_state *w, struct server_bytes b);

#endif
