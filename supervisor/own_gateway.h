/* struct own_gateway: a gateway that a command starts for itself, with the command's settings. It
 * has its own port and folders, one worker and one router, and neither an executor nor traces. */
#ifndef RG_SUPERVISOR_OWN_GATEWAY_H
#define RG_SUPERVISOR_OWN_GATEWAY_H

#include <sys/types.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct config;

struct own_gateway {
    pid_t pid;       /* 0: it does not run */
    int log_fd;      /* memory file with what it prints */
    char folder[64]; /* its state and run folders are below */
    char url[40];
};

/* Starts it. argv[1..] are the settings that `c` was loaded from. -1: it cannot start. */
int own_gateway_start(struct own_gateway *g, const struct config *c, int argc, char **argv,
                      struct err *e);

/* False if it has ended; then `why` has the last line of its log about an error. */
bool own_gateway_lives(struct own_gateway *g, struct buf *why);

/* Ends it and removes its folders. */
void own_gateway_stop(struct own_gateway *g);

#endif
