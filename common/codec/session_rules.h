/*
 * Rules for options of a session (session_options.def): which ones exclude each other, and which
 * values exceed what the gateway allows. POST /sessions and a group's `session` follow the same
 * rules. Pure.
 */
#ifndef RG_CODEC_SESSION_RULES_H
#define RG_CODEC_SESSION_RULES_H

#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

struct json;

/* on_truncated "branch" needs a history that has branches; `history` is what is in force. 0, or -1
 * and ERR_INVALID. */
int session_rules_branch(const struct json *options, const char *history, struct err *e);

/* A session gets no more messages than the gateway allows: better said than given less. */
int session_rules_nodes(const struct json *options, int64_t most, struct err *e);

/* Compares metadata with SESSION_MEMBERS_MAX and with --max-metadata-bytes (0: any), and the bytes
 * of all other options with SESSION_OPTIONS_MAX. 0, or -1 and ERR_INVALID. */
int session_rules_size(const struct json *options, int64_t max_metadata_bytes, struct err *e);

/* Moves sampling parameters next to sampling_params into it (*ret: in the arena, or `options`
 * itself). -1 and ERR_INVALID: one is in both, with two values. */
int session_rules_lift(struct arena *a, const struct json *options, const struct json **ret,
                       struct err *e);

#endif
