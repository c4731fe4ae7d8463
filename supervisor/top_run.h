/*
 * The figures of the run in `rollgate top`: GET /stats as lines.
 */
#ifndef RG_SUPERVISOR_TOP_RUN_H
#define RG_SUPERVISOR_TOP_RUN_H

#include "common/base/str.h"

/* Prints the figures of an answer of GET /stats. Prints nothing while no session has ended. */
void top_print_run(struct str stats);

/* Prints one line of JSON: the answer of GET /stats and the nodes of the fleet (empty: null), and
 * the metrics by name. */
void top_print_json(struct str stats, struct str fleet, struct str page);

#endif
