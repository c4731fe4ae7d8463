/*
 * What a reward_info may contain, and which one of its numbers trainers get. The rule is the same
 * everywhere (exports, sinks, listings): `reward`, else `score`, else the only number in it; null
 * counts as absent. Otherwise the reward is unknown, which is not the same as 0.
 */
#ifndef RG_SESSION_REWARD_H
#define RG_SESSION_REWARD_H

#include <stdbool.h>

#include "common/base/str.h"
#include "common/base/vec.h"

struct err;
struct json;
struct json_out;
struct session;

struct reward_member {
    struct str key, json;
};

/* A JSON object that is kept as members in order; the last write of each key counts
 * (reward_info). */
struct reward {
    struct str response_id; /* response of the reward; absent: the session's */
    VEC(struct reward_member) members;
};

/* Checks that `info` is a valid reward_info: an object whose `reward` and `score` are numbers or
 * null, and none of whose own numbers exceeds a float32 (trainers get it as one). Returns -1 with
 * ERR_INVALID that names the member. */
int reward_check(const struct json *info, struct err *e);

/* Checks one value that will be a reward itself: a number that fits a float32, or null. The error
 * calls it `name`. */
int reward_check_value(const struct json *v, const char *name, struct err *e);

/* Returns the number that trainers get. Returns false, with *ret 0, if it is unknown. */
bool reward_number(const struct reward *r, double *ret);

/* Writes the value of a member: the number, or null if it is unknown. */
void reward_put(const struct reward *r, struct json_out *o);

/* Writes an object of the members, unchanged. r may be NULL: no members. */
void reward_put_members(const struct reward *r, struct json_out *o);

/* Finds the reward of a response, whose id must be present. Returns NULL if there is none. */
struct reward *reward_find(const struct session *s, struct str response_id);

/* Moves the reward of response `from` to response `to`, which represents it from now on. The id
 * `to` must live as long as the session's content. Does nothing if one of them has no id, or if
 * `to` has a reward already. */
void reward_move(struct session *s, struct str from, struct str to);

/* Checks that `more` may be added to the reward of a response (absent id: the session's): at most
 * SESSION_MEMBERS_MAX members in all. Returns -1 with ERR_INVALID if not. */
int reward_check_members(const struct session *s, struct str response_id, const struct json *more,
                         struct err *e);

/* Merges the last field of a record into the reward of a response. Returns -1 with ERR_IO, without
 * a change, if it is not valid. */
int reward_apply(struct session *s, struct str response_id, struct str text, struct err *e);

/* Frees the rewards of the session and of its responses. */
void session_free_rewards(struct session *s);

#endif
