/*
 * The figures that a worker shows: in metrics, and on the board that routers and /ready read.
 */
#ifndef RG_WORKER_WORKER_FIGURES_H
#define RG_WORKER_WORKER_FIGURES_H

#include "common/serve/server.h"

struct worker_state;

/* Once a second, and when an engine comes or goes. b: what its server holds now. */
void worker_figures_publish(const struct worker_state *w, struct server_bytes b);

#endif
