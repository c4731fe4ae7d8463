/*
 * The key files as the supervisor needs them: checked before there are children and at a reload,
 * and a key made of them for the local executor.
 */
#ifndef RG_SUPERVISOR_KEY_FILES_H
#define RG_SUPERVISOR_KEY_FILES_H

struct buf;
struct config;
struct err;

enum { EXECUTOR_KEY_MAX = 256 };

/* Checks the key files once, before there are children. Mistakes are reported at once. A missing
 * secret is made here, by the process that may write files. -1: e says what is wrong. */
int key_files_check(const struct config *c, struct err *e);

/* Appends what is wrong with the keys of fresh settings, a line each. A reload may change keys,
 * never take them away: the port may be reachable from anywhere. */
void key_files_check_change(const struct config *old, const struct config *fresh,
                            struct buf *mistakes);

/* The local executor's key; "" when the gateway wants no keys. -1: the files cannot be read. */
int key_files_executor(const struct config *c, char ret[EXECUTOR_KEY_MAX], struct err *e);

#endif
