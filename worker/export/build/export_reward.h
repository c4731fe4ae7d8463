/* The one number that an export's format has as the reward, and what it has if there is none. The
 * rule itself is worker/session/store/reward.h. */
#ifndef RG_EXPORT_EXPORT_REWARD_H
#define RG_EXPORT_EXPORT_REWARD_H

#include <stdbool.h>

struct export;
struct json_out;

/* Copies the session's reward at the time when the export is made (x->told, x->unfinished). */
void export_take_reward(struct export *x);

/* Returns the reward that the format exports: a `reward` in the metadata of the request (miles),
 * else the session's. Returns false if it is unknown. */
bool export_reward(const struct export *x, double *ret);

/* Writes the member: the number, or null. */
void export_put_reward(const struct export *x, const char *key, struct json_out *o);

#endif
