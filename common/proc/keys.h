/*
 * struct keys: the permissions of callers. Three kinds of key:
 *     admin    a line of --admin-key-file
 *     runner   rgr-<session id>-<mac>
 *     agent    rga-<session id>-<mac>
 *     executor rgx-<name>-<mac>
 * mac is 64 lower-case hex digits: HMAC-SHA256 over "rollgate-key-1:<scope>:<session id>" under the
 * secret. So session keys are verified without any lookup, by every worker of every node that has
 * the same secret. The secret file holds one secret a line, newest first: the first makes keys, all
 * verify, which is how a secret is rotated without a gap. Comparisons take constant time.
 *
 * Loaded once; a reload makes a new one. Session keys that were good are remembered, so that an
 * agent's next request costs no HMAC. Key texts are never logged and never stand in an error text.
 */
#ifndef RG_PROC_KEYS_H
#define RG_PROC_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/proc/ids.h"
#include "common/proc/proof.h"

enum {
    KEY_MAC_LEN = 64,
    KEY_EXECUTOR_MAX = 32,
    KEY_TEXT_MAX = 4 + ID_TEXT_MAX + KEY_MAC_LEN + 2, /* with the NUL */
};

struct buf;
struct err;
struct keys;

/* Reads the admin keys (NULL: none are needed) and the secret; without secret_file the secret is
 * STATE_DIR/key-secret, made when missing. -1 with ERR_CONFIG (an empty or too short file) or
 * ERR_IO. */
int keys_load(const char *admin_file, const char *secret_file, const char *state_dir,
              struct keys **ret, struct err *e);
void keys_free(struct keys *k);

/* Appends a line for each of the two files (NULL: none) that does not hold what it should. */
void keys_check_files(const char *admin_file, const char *secret_file, struct buf *mistakes);

/* Whether requests need a key (an admin key file is configured). */
bool keys_required(const struct keys *k);

/* Writes an executor's key; the name has 1 to KEY_EXECUTOR_MAX of [A-Za-z0-9.-]. -1 with
 * ERR_INVALID when it has not. */
int keys_make_executor(const struct keys *k, struct str name, char ret_text[KEY_TEXT_MAX],
                       struct err *e);

/* Writes the key with which the gateway's own processes call each other: an admin's. It never
 * leaves the node. */
void keys_make_service(const struct keys *k, char ret_text[KEY_TEXT_MAX]);

/* Writes the session's key of the scope (KEY_AGENT or KEY_RUNNER); id is a valid session id. */
void keys_make(const struct keys *k, enum key_scope scope, struct str id,
               char ret_text[KEY_TEXT_MAX]);

/* Whether a text begins as a session key does: it is meant for us, good or not. */
bool keys_is_form(struct str text);

/* The scope that a presented key really has; KEY_NONE when it is none of ours. For session keys
 * and executors' *ret_id becomes the id or name inside `text` (borrowed), else absent. */
enum key_scope keys_check(const struct keys *k, struct str text, struct str *ret_id);

/* Queries stand in the logs of whatever is on the way: -1 with ERR_MISSING_KEY if a value is a key
 * of ours. Each value needs a digest. So a query with more than KEYS_QUERY_MAX parameters, more
 * than any client needs, is -1 with ERR_INVALID: a key could hide after them. If the request needs
 * a key of its own, check that first. */
int keys_check_query(const struct keys *k, struct str query, struct err *e);

/* Parses what a text claims to be, without verifying it: the form of a session key, its id and
 * worker index. For routing only. Returns 0 or -1. */
int keys_parse(struct str text, enum key_scope *ret_scope, struct str *ret_id, uint32_t *ret_index);

#endif
