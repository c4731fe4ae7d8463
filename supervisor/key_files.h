/*
 * The key files as the supervisor uses them. They are checked before there are children and at a
 * reload, and a key for the local executor is made from them.
 */
#ifndef RG_SUPERVISOR_KEY_FILES_H
#define RG_SUPERVISOR_KEY_FILES_H

struct buf;
struct config;
struct err;

enum { EXECUTOR_KEY_MAX = 256 };

/* Checks the key files once, before there are children, and reports mistakes. Makes a missing
 * secret here, because children may not write it. Returns -1; e has the mistake. */
int key_files_check(const struct config *c, struct err *e);

/* Appends a line for each mistake in the keys of new settings. A reload may change keys but never
 * remove them: the port may be reachable from anywhere. */
void key_files_check_change(const struct config *old, const struct config *fresh,
                            struct buf *mistakes);

/* Makes the local executor's key; "" if the gateway needs no keys. Returns -1 if the files cannot
 * be read. */
int key_files_executor(const struct config *c, char ret[EXECUTOR_KEY_MAX], struct err *e);

#endif
