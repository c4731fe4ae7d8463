/*
 * struct durable_answer: an answer of the control plane that waits until its record is durable.
 * With durability none and process nothing waits: the answer is sent before durable_answer_new's
 * caller returns.
 */
#ifndef RG_CONTROL_PENDING_H
#define RG_CONTROL_PENDING_H

struct buf;
struct durable_answer;
struct err;
struct ledger_done;
struct service_request;

/* Makes an answer. Takes ownership of the exchange. */
struct durable_answer *durable_answer_new(struct service_request *r, int status);

/* Returns the body. The owner fills it before the record is written. */
struct buf *durable_answer_body(struct durable_answer *p);

/* Returns what the ledger calls: it sends the answer, or says why there is no second copy in time,
 * and frees the answer. */
struct ledger_done durable_answer_done(struct durable_answer *p);

/* Answers the error instead and frees the answer, because the record could not be written. */
void durable_answer_fail(struct durable_answer *p, const struct err *e);

#endif
