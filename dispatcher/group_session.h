/* A group's `session` and `members[].sampling_params`: options of POST /sessions, which every
 * attempt's session is made with. They are checked when the group is submitted, not when an attempt
 * begins. */
#ifndef RG_DISPATCHER_GROUP_SESSION_H
#define RG_DISPATCHER_GROUP_SESSION_H

struct config;
struct err;
struct json;

/* The names, values and limits of POST /sessions (common/codec/session_options.def), but for
 * those that the group sets itself (group_parse). What is in engine_extra alone is left to the
 * engines of the day. `body` and `defaults` are submissions; `where` ("groups[3]." or "") stands
 * before the name in the error. -1: ERR_INVALID that names the option. */
int group_session_check(const struct json *body, const struct json *defaults,
                        const struct config *config, const char *where, struct err *e);

#endif
