/*
 * --user: whom routers, workers and the dispatcher run as when the supervisor was started as root,
 * which it stays (it binds ports, and its successor in an upgrade needs what it needs).
 */
#ifndef RG_SUPERVISOR_USER_H
#define RG_SUPERVISOR_USER_H

#include "common/base/err.h"

struct config;

/* Whether there is such a user, and we may become it. Nothing set: 0. ERR_CONFIG. */
int user_check(const struct config *c, struct err *e);

/* Gives the user a file or folder that the supervisor has just made for the children; nothing set:
 * 0. ERR_IO. */
int user_give(const struct config *c, const char *path, struct err *e);

/* Whether what stands at the path is the user's: a state folder of somebody else's is an error that
 * says how to mend it. Nothing set: 0. ERR_CONFIG. */
int user_owns(const struct config *c, const char *path, struct err *e);

/* In a child: becomes the user, for good. Nothing set: 0. ERR_CONFIG. */
int user_become(const struct config *c, struct err *e);

#endif
