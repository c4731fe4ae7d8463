/*
 * "Did you mean" for paths: a misspelt path of ours looks like one of the engine's, and the error
 * about that helps nobody.
 */
#ifndef RG_API_NEAR_PATH_H
#define RG_API_NEAR_PATH_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

/* Adds to e the path of ours that `path` (below a session: what follows its id) was probably meant
 * to be, if there is one. */
void near_path_tell(struct str path, bool in_session, struct err *e);

/* Whether the path's first name is a misspelt folder of the control plane ("/session/w0-1"), with
 * more behind it: no engine is asked for such a path. */
bool near_path_is_ours(struct str path);

#endif
