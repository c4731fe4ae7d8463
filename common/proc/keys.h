/*
 * struct keys: the permissions of callers. Kinds of keys:
 *     admin    a line of --admin-key-file
 *     runner   rgr-<session id>-<mac>
 *     agent    rga-<session id>-<mac>
 *     executor rgx-<name>-<mac>
 *
 * mac is 64 lower-case hex digits: HMAC-SHA256 over "rollgate-key-1:<scope>:<session id>" under the
 * secret. So every worker of every node that has the secret can verify session keys without any
 * lookup. The secret file holds one secret a line, newest first. The first makes keys, all verify.
 * So a secret can be rotated without a gap. Comparisons take constant time.
 *
 * Keys are loaded once; a reload makes a new struct. Verified session keys are remembered, so that
 * an agent's next request costs no HMAC. Key texts are never in logs or error texts.
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
    KEYS_PRINT_MAX = 17,                              /* a fingerprint, with the NUL */
    KEY_TEXT_MAX = 4 + ID_TEXT_MAX + KEY_MAC_LEN + 2, /* with the NUL */
};

struct buf;
struct keys;

/* Reads the admin keys (NULL: none are needed) and the secret. Without secret_file the secret is
 * STATE_DIR/key-secret, which is made if it is missing. Returns -1 with ERR_CONFIG (a file is empty
 * or too short) or ERR_IO. */
int keys_load(const char *admin_file, const char *secret_file, const char *state_dir,
              struct keys **ret, struct err *e);
void keys_free(struct keys *k);

/* Removes the next line that is not blank and no comment (#) from *rest. Returns it trimmed; absent
 * at the end. */
struct str keys_next_line(struct str *rest);

/* Checks the content of the two files (NULL: no file), and appends a line for each mistake. */
void keys_check_files(const char *admin_file, const char *secret_file, struct buf *mistakes);

/* Writes a fingerprint of secret number i, newest first, from which the secret cannot be found.
 * False: there are at most i secrets. Nodes of a fleet compare fingerprints. */
bool keys_print_secret(const struct keys *k, size_t i, char ret_text[KEYS_PRINT_MAX]);

/* Writes a fingerprint of the set of admin keys, under the newest secret; "none" without keys. */
void keys_print_admins(const struct keys *k, char ret_text[KEYS_PRINT_MAX]);

/* Returns the proof with which a node of a fleet shows other nodes that it has the newest secret.
 * Borrowed. */
const char *keys_node_proof(const struct keys *k);

/* Reports whether the text is such a proof, of any of the secrets. */
bool keys_check_node_proof(const struct keys *k, struct str text);

/* Reports whether requests need a key (an admin key file is configured). */
bool keys_required(const struct keys *k);

/* Writes an executor's key. The name must have 1 to KEY_EXECUTOR_MAX characters of [A-Za-z0-9.-];
 * otherwise returns -1 with ERR_INVALID. */
int keys_make_executor(const struct keys *k, struct str name, char ret_text[KEY_TEXT_MAX],
                       struct err *e);

/* Writes the key with which the gateway's own processes call each other. It has an admin's
 * permissions, at all nodes of a fleet. */
void keys_make_service(const struct keys *k, char ret_text[KEY_TEXT_MAX]);

/* Writes the session's key of the scope (KEY_AGENT or KEY_RUNNER). id must be a valid session id.
 */
void keys_make(const struct keys *k, enum key_scope scope, struct str id,
               char ret_text[KEY_TEXT_MAX]);

/* Reports whether a text begins like a session key. Such a text is meant for the gateway, even if
 * it is invalid. */
bool keys_is_form(struct str text);

/* Returns the scope that a presented key proves; KEY_NONE if it is not a valid key. For session and
 * executor keys, *ret_id becomes the id or name inside `text` (borrowed), otherwise absent. */
enum key_scope keys_check(const struct keys *k, struct str text, struct str *ret_id);

/* Returns -1 with ERR_MISSING_KEY if a value of the query is a key of ours: programs on the way log
 * queries. Each value needs a digest. So a query with more than KEYS_QUERY_MAX parameters, more
 * than any client needs, fails with ERR_INVALID: a key could be among the rest. If the request
 * needs a key of its own, check that first. */
int keys_check_query(const struct keys *k, struct str query, struct err *e);

/* Parses a session key without verifying it: its form, id and worker index. For routing only.
 * Returns 0, or -1 if the text does not have that form. */
int keys_parse(struct str text, enum key_scope *ret_scope, struct str *ret_id, uint32_t *ret_index);

#endif
