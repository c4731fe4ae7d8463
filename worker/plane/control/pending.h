/*
 * struct durable_answer: a control-plane answer that waits until its record is durable. Without
 * waiting (durability none and process) the answer goes out before durable_answer_new's caller
 * returns.
 */
#ifndef RG_CONTROL_PENDING_H
#define RG_CONTROL_PENDING_H

struct buf;
struct durable_answer;
struct err;
struct service_request;

/* Makes an answer and takes ownership of the exchange. */
struct durable_answer *durable_answer_new(struct service_request *r, int status);

/* The body to be sent; filled by the owner before durable_answer_send can come. */
struct buf *durable_answer_body(struct durable_answer *p);

/* ledger_write's `durable`, and ledger_wait_durable's, with the pending as ctx: sends and frees. */
void durable_answer_send(void *ctx);

/* The record could not be written: answers the error instead and frees. */
void durable_answer_fail(struct durable_answer *p, const struct err *e);

#endif
