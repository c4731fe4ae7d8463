/*
 * Sessions that are samples of one task: the options `group` (its id), `rollout` (which of its
 * samples this session is, from 0) and `group_size`, all journaled with the session. The attempt,
 * where a rollout is tried more than once, is the label `attempt`. Exports and sinks pass them on.
 */
#ifndef RG_SESSION_GROUP_H
#define RG_SESSION_GROUP_H

#include "common/base/str.h"

struct err;
struct json;
struct json_out;
struct session;
struct session_options;

/* Reads and checks the three out of POST /sessions options into o; ERR_INVALID that names one. */
int group_read(const struct json *v, struct session_options *o, struct err *e);

/* Writes them as the members that group_read reads. */
void group_write(const struct session_options *o, struct json_out *out);

/* Writes the known ones of group, rollout, group_size and attempt, as members. Nothing for a
 * session outside of groups and without the label. */
void group_put(const struct session *s, struct json_out *out);

/* Returns the value by which trainers group the session's trajectories: `metadata.uid` (a text or a
 * number), else the group's id; absent without both. Borrowed from the session. */
struct str group_uid(const struct session *s);

#endif
