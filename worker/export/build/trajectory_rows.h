/* The rows that engines returned for the tokens of a trajectory (worker/text/request/token_rows.h).
 */
#ifndef RG_EXPORT_TRAJECTORY_ROWS_H
#define RG_EXPORT_TRAJECTORY_ROWS_H

#include <stdbool.h>

struct arena;
struct trajectory;

/* Fills r->experts from the turns, whose payloads have been recalled. */
void trajectory_fill_experts(struct arena *a, struct trajectory *r);

/* Fills r->has_indexer, and, where the rows are `wanted`, r->indexer and the array indexer_topk,
 * likewise: they are large. */
void trajectory_fill_indexer(bool wanted, struct arena *a, struct trajectory *r);

#endif
