/*
 * Begins a request: decides by its head what happens to it.
 */
#ifndef RG_ROUTER_CONN_REQUEST_H
#define RG_ROUTER_CONN_REQUEST_H

#include <stddef.h>

#include "common/base/str.h"

struct conn;

/* Begins the request whose head, hub->head, is at the start of `bytes`. Returns the number of used
 * bytes; 0 if the request is held. The connection may be closed afterwards. */
size_t conn_begin_request(struct conn *c, struct str bytes);

#endif
