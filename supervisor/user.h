/*
 * --user: the user of routers, workers and the dispatcher if the supervisor was started as root.
 * The supervisor stays root: it binds ports, and its successor in an upgrade needs the same rights.
 */
#ifndef RG_SUPERVISOR_USER_H
#define RG_SUPERVISOR_USER_H

#include "common/base/err.h"

struct config;

/* Checks that the user exists and that we may become that user. Returns 0 without --user; -1 with
 * ERR_CONFIG. */
int user_check(const struct config *c, struct err *e);

/* Makes the user the owner of a file or folder that the supervisor has just made for the children.
 * Returns 0 without --user; -1 with ERR_IO. */
int user_chown(const struct config *c, const char *path, struct err *e);

/* Checks that the file or folder at the path is the user's. The error about a state folder of a
 * different user says how to mend it. Returns 0 without --user; -1 with ERR_CONFIG. */
int user_owns(const struct config *c, const char *path, struct err *e);

/* Becomes the user, in a child, for good. Does nothing without --user. Returns -1 with
 * ERR_CONFIG. */
int user_become(const struct config *c, struct err *e);

#endif
