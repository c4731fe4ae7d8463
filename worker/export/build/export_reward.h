/* The one number that an export's format gives trainers as the reward, and what is said where there
 * is none. The rule itself is worker/session/store/reward.h. */
#ifndef RG_EXPORT_EXPORT_REWARD_H
#define RG_EXPORT_EXPORT_REWARD_H

#include <stdbool.h>

struct export;
struct json_out;

/* Takes the session's reward as it is when the export is made (x->told, x->unfinished). */
void export_take_reward(struct export *x);

/* Returns the reward that the format exports: a `reward` in the metadata of the request (miles),
 * else the session's. False: it is unknown. */
bool export_reward(const struct export *x, double *ret);

/* Writes a JSON value: the number, or null. */
void export_put_reward(const struct export *x, struct json_out *o);

#endif
