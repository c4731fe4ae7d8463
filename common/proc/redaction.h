/*
 * Copies text without its secrets, for files that leave the machine. Removes:
 *   - users, passwords, paths and queries of addresses: http://(hidden)@host:1/(hidden)
 *   - values of names that end with key, password, secret, token and the like (key=***)
 *   - keys of sessions and executors (rga-***), and the word after "Bearer"
 *
 * Names of files that hold secrets are kept. Pure.
 */
#ifndef RG_PROC_REDACTION_H
#define RG_PROC_REDACTION_H

#include "common/base/buf.h"
#include "common/base/str.h"

/* Appends the text without its secrets. */
void redaction_add(struct str text, struct buf *out);

#endif
