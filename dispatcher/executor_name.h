/*
 * The name under which an executor claims attempts, renews them and ends them: a member of its
 * requests, or what its key says.
 */
#ifndef RG_DISPATCHER_EXECUTOR_NAME_H
#define RG_DISPATCHER_EXECUTOR_NAME_H

struct desk_request;
struct err;

enum { EXECUTOR_MAX = 128 /* bytes */ };

/* Reads the member "executor". Without it, the name is the one in the executor's key. With both,
 * the member must be that name or begin with it and a '/', since several processes may share a key.
 * ret is NUL-terminated. -1: ERR_INVALID, ERR_WRONG_SCOPE. */
int executor_name_read(struct desk_request *r, char ret[EXECUTOR_MAX + 1], struct err *e);

#endif
