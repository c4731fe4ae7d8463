/*
 * Alternatives and sampling supports as arrays over a trajectory's response. The payloads have them
 * turn by turn.
 */
#ifndef RG_EXPORT_TRAJECTORY_ODDS_H
#define RG_EXPORT_TRAJECTORY_ODDS_H

struct arena;
struct trajectory;
struct trajectory_input;
struct trajectory_array;

/* Fills r->odds and lists its arrays. Call it when turns and mask are known. Each array covers all
 * trained tokens or does not exist. Payloads must have been recalled. */
void trajectory_fill_odds(struct arena *a, struct trajectory *r);

/* Makes r->scores and lists their arrays. */
void trajectory_fill_scores(const struct trajectory_input *in, struct arena *a,
                            struct trajectory *r);

/* Adds an array to those of r. */
void trajectory_add(struct trajectory *r, struct trajectory_array array);

#endif
