/*
 * What a reward_info may hold, and which one number of it trainers are given. The rule is the same
 * everywhere (exports, sinks, listings): `reward`, else `score`, else the only number in it; null
 * counts as not there; otherwise the reward is unknown, which is not the same as 0.
 */
#ifndef RG_SESSION_REWARD_H
#define RG_SESSION_REWARD_H

#include <stdbool.h>

#include "common/base/str.h"
#include "common/base/vec.h"

struct buf;
struct err;
struct json;
struct json_out;
struct session;

struct reward_member {
    struct str key, json;
};

/* A JSON object kept as members in order, the newest write per key (reward_info). */
struct reward {
    struct str response_id; /* absent: the session's */
    VEC(struct reward_member) members;
};

/* Whether `info` can be taken as a reward_info: an object whose `reward` and `score` are numbers or
 * null, and none of whose own numbers is beyond what a float32 holds (trainers get it as one).
 * ERR_INVALID that names the member. */
int reward_check(const struct json *info, struct err *e);

/* One value that is to be a reward itself: a number that a float32 holds, or null. `name` is what
 * the error calls it. */
int reward_check_value(const struct json *v, const char *name, struct err *e);

/* The number that trainers get; false when it is unknown (*ret is 0 then). */
bool reward_number(const struct reward *r, double *ret);

/* Writes the value of a member: the number, or null if it is unknown. */
void reward_put(const struct reward *r, struct json_out *o);

/* Finds or makes the reward of a response (absent id: the session's). Of the same answer twice
 * (checkpoint_shown) there is one, whichever id names it. */
struct reward *session_reward(struct session *s, struct str response_id);

/* Finds the reward of a response, whose id is present; NULL: there is none. */
struct reward *reward_find(const struct session *s, struct str response_id);

/* A response `to` now stands for `from`: what was given to that is its reward, under its id, which
 * must live as long as the session's content. Nothing changes where one of them has no id, or `to`
 * a reward already. */
void reward_move(struct session *s, struct str from, struct str to);

/* Whether `more` may come to the reward of a response (absent id: the session's): at most
 * SESSION_MEMBERS_MAX in all. 0, or -1 and ERR_INVALID. */
int reward_check_members(const struct session *s, struct str response_id, const struct json *more,
                         struct err *e);

/* Merges the last field of a record into the reward of a response. 0, or -1 and ERR_IO, without a
 * change. */
int reward_apply(struct session *s, struct str response_id, struct str text, struct err *e);

/* Frees the rewards, of the session and of its responses. */
void session_free_rewards(struct session *s);

#endif
