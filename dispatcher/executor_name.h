/*
 * The name under which an executor claims, renews and ends attempts: a member of its requests, or
 * the name in its key.
 */
#ifndef RG_DISPATCHER_EXECUTOR_NAME_H
#define RG_DISPATCHER_EXECUTOR_NAME_H

struct desk_request;
struct err;

enum { EXECUTOR_MAX = 128 /* bytes */ };

/* Reads the member "executor". Without the member, the name is the one in the executor's key. With
 * both, the member must be that name, or that name, a '/' and more, because several processes may
 * share a key. ret is NUL-terminated. Returns -1 with ERR_INVALID or ERR_WRONG_SCOPE. */
int executor_name_read(struct desk_request *r, char ret[EXECUTOR_MAX + 1], struct err *e);

#endif
