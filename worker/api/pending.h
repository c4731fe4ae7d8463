/*
 * struct pending: a control-plane answer that waits until its record is durable. Without waiting
 * (durability none and process) the answer goes out before pending_new's caller returns.
 */
#ifndef RG_API_PENDING_H
#define RG_API_PENDING_H

#include "worker/api/api.h"

struct pending;

/* Takes the exchange over. */
struct pending *pending_new(struct api_request *r, int status);

/* The body to be sent; filled by the owner before pending_durable can come. */
struct buf *pending_body(struct pending *p);

/* ledger_write's `durable`, with the pending as ctx: sends and frees. */
void pending_durable(void *ctx);

/* The record could not be written: answers the error instead and frees. */
void pending_fail(struct pending *p, const struct err *e);

#endif
