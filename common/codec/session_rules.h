/*
 * Rules between options of a session (session_options.def), and limits of the gateway. POST
 * /sessions and a group's `session` follow the same rules. All functions return 0, or -1 and
 * ERR_INVALID. Pure.
 */
#ifndef RG_CODEC_SESSION_RULES_H
#define RG_CODEC_SESSION_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

struct json;

/* Reports whether the text can be a group's id or a queue's name: 1 to GROUP_ID_MAX of the
 * characters A-Z a-z 0-9 . - */
bool session_rules_is_group_id(struct str text);

/* Refuses on_truncated "branch" with a history policy that has no branches. `history` is the policy
 * in force. */
int session_rules_branch(const struct json *options, const char *history, struct err *e);

/* Refuses max_nodes above the gateway's limit, instead of lowering it silently. */
int session_rules_nodes(const struct json *options, int64_t most, struct err *e);

/* Checks the size of metadata against SESSION_MEMBERS_MAX and --max-metadata-bytes (0: no limit),
 * and the bytes of all other options against SESSION_OPTIONS_MAX. */
int session_rules_size(const struct json *options, int64_t max_metadata_bytes, struct err *e);

/* Moves sampling parameters that are options themselves into sampling_params. *ret is in the arena,
 * or `options` itself. Fails if a parameter has two different values. */
int session_rules_lift(struct arena *a, const struct json *options, const struct json **ret,
                       struct err *e);

#endif
