/* struct own_gateway: a gateway that a command starts for itself, with the command's settings. It
 * has its own port and folders, one worker and one router, and neither an executor nor traces. */
#ifndef RG_SUPERVISOR_OWN_GATEWAY_H
#define RG_SUPERVISOR_OWN_GATEWAY_H

#include <sys/types.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct config;

struct own_gateway {
    pid_t pid;       /* 0: the gateway does not run */
    int log_fd;      /* memory file with its output */
    char folder[64]; /* folder that contains its state and run folders */
    char url[40];
};

/* Starts the gateway. argv[1..] are the settings that `c` was loaded from. Returns -1 if it cannot
 * start. */
int own_gateway_start(struct own_gateway *g, const struct config *c, int argc, char **argv,
                      struct err *e);

/* Returns false if the gateway has ended. Then `why` has the last line of its log about an
 * error. */
bool own_gateway_lives(struct own_gateway *g, struct buf *why);

/* Ends the gateway and removes its folders. */
void own_gateway_stop(struct own_gateway *g);

#endif
