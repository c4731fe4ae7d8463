/*
 * "Did you mean" for paths: a misspelt path of ours looks like an engine's path, and the error
 * about that does not help.
 */
#ifndef RG_API_NEAR_PATH_H
#define RG_API_NEAR_PATH_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

/* Adds to e the path of ours that was probably meant, if there is one. `rest`: what follows the id
 * of a path below a session, else the whole path. */
void near_path_hint(struct str path, struct str rest, struct err *e);

/* Reports whether the path has a misspelt folder of the control plane ("/session/w0-1"), or a
 * session's path after something else ("/v1/sessions/w0-1/..."). Such a path is never forwarded to
 * an engine. */
bool near_path_is_ours(struct str path);

#endif
