/* The rows that engines returned for the tokens of a trajectory
 * (worker/text/request/token_rows.h). */
#ifndef RG_EXPORT_TRAJECTORY_ROWS_H
#define RG_EXPORT_TRAJECTORY_ROWS_H

#include <stdbool.h>

struct arena;
struct trajectory;

/* Fills r->experts from the turns, whose payloads must have been recalled. */
void trajectory_fill_experts(struct arena *a, struct trajectory *r);

/* Fills r->has_indexer. If the rows are `wanted`, also r->indexer and the array indexer_topk, which
 * are large. */
void trajectory_fill_indexer(bool wanted, struct arena *a, struct trajectory *r);

#endif
