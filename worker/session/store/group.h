/*
 * Sessions that are samples of one task: the options `group` (its id), `rollout` (index of the
 * session among its samples) and `group_size`, all journaled with the session. If a rollout is
 * tried more than once, the label `attempt` counts the tries. Exports and sinks pass them on.
 */
#ifndef RG_SESSION_GROUP_H
#define RG_SESSION_GROUP_H

#include "common/base/str.h"

struct err;
struct json;
struct json_out;
struct session;
struct session_options;

/* Reads and checks the three from POST /sessions options into o. Returns -1 with ERR_INVALID that
 * names the option. */
int group_read(const struct json *v, struct session_options *o, struct err *e);

/* Writes the options as the members that group_read reads. */
void group_write(const struct session_options *o, struct json_out *out);

/* Writes group, rollout, group_size and attempt, if set, as members. Writes nothing for a session
 * without a group and without the label. */
void group_put(const struct session *s, struct json_out *out);

/* Returns the value by which trainers group the session's trajectories: `metadata.uid` (a text or a
 * number), else the group's id. Absent without both. Borrowed from the session. */
struct str group_uid(const struct session *s);

/* Reports whether `metadata.uid` is given, but group_uid cannot use it. */
bool group_is_uid_odd(const struct session *s);

#endif
