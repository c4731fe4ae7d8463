/* Tries whether a Redis of --sink would take entries. */
#ifndef RG_SINK_REDIS_REACH_H
#define RG_SINK_REDIS_REACH_H

#include "common/base/err.h"
#include "common/base/str.h"

/* Connects, logs in and trims nothing from the stream, which an XADD would need to be allowed, too.
 * Blocks for some seconds. spec: the text after "redis:". Fails with ERR_CONFIG or ERR_IO. */
int redis_reach(struct str spec, struct err *e);

#endif
