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

#endif
