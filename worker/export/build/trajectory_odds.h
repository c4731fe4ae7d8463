/*
 * What else could have been sampled, as arrays over a trajectory's response: alternatives and
 * sampling supports of its turns, which the payloads hold one by one.
 */
#ifndef RG_EXPORT_TRAJECTORY_ODDS_H
#define RG_EXPORT_TRAJECTORY_ODDS_H

struct arena;
struct trajectory;
struct trajectory_input;
struct trajectory_array;

/* Fills r->odds and lists its arrays, once turns and mask are known. Each is there for all trained
 * tokens or not at all; payloads must have been recalled. */
void trajectory_fill_odds(struct arena *a, struct trajectory *r);

/* Makes and fills r->scores, and lists their arrays. */
void trajectory_fill_scores(const struct trajectory_input *in, struct arena *a,
                            struct trajectory *r);

/* Lists an array among those of r. */
void trajectory_add(struct trajectory *r, struct trajectory_array array);

#endif
