/* A group's `session`: options of POST /sessions for each attempt, and the other members that a
 * session gets from its group. They are checked when the group is submitted, not when an attempt
 * begins. */
#ifndef RG_DISPATCHER_GROUP_SESSION_H
#define RG_DISPATCHER_GROUP_SESSION_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct config;
struct err;
struct group;
struct group_spec;
struct json;

/* Checks the names, values and limits of POST /sessions (common/codec/session_options.def), except
 * those that the group sets itself (group_parse). The content of engine_extra is left to the
 * engines. `body` and `defaults` are submissions; `where` ("groups[3]." or "") precedes the name in
 * the error. Returns -1 with ERR_INVALID, which names the option. */
int group_session_check(const struct json *body, const struct json *defaults,
                        const struct config *config, const char *where, struct err *e);

/* Checks the session of an attempt, which is merged from several objects of a submission. Each
 * object alone is within the limits. The sums are checked here: members of metadata, bytes of the
 * other options, bytes of all. Returns -1 with ERR_INVALID, which names the object, the value and
 * the limit. */
int group_session_check_sum(const struct group_spec *spec, const struct json *body,
                            const struct json *defaults, const struct config *config,
                            const char *where, struct err *e);

/* Writes the body of POST /sessions for an attempt at a rollout of the group. The group's metadata
 * becomes the session's, so that exports contain the trainer's columns. Returns whether the options
 * choose the node of a fleet. */
bool group_session_write(const struct group *g, uint32_t rollout, const char *attempt,
                         struct buf *out);

#endif
