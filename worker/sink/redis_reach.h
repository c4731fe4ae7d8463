/* Tries whether a Redis of --sink would take entries. */
#ifndef RG_SINK_REDIS_REACH_H
#define RG_SINK_REDIS_REACH_H

#include "common/base/err.h"
#include "common/base/str.h"

/* Connects, logs in and tries what an entry needs, without adding one. Blocks for some seconds.
 * spec: the text after "redis:". Fails with ERR_CONFIG or ERR_IO. */
int redis_reach(struct str spec, struct err *e);

#endif
