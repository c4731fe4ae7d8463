/*
 * Takes away, before a child reads its first byte from outside, as far as the kernel allows:
 *   - new privileges (no_new_privs) and all capabilities, also those in the bounding set;
 *   - core dumps (they would hold prompts and keys), locked memory, message queues and real-time
 *     priorities: RLIMITs of 0;
 *   - the file system but for what landlock.h lists, where the kernel has Landlock;
 *   - all system calls that its kind of process does not need: sandbox.def lists the others.
 *
 * A refused call fails: with EPERM if only its arguments are not allowed, otherwise with ENOSYS,
 * after which the C library tries another way. It is reported, too: the kernel sends SIGSYS, whose
 * handler records the call on the board for the supervisor's log and counts it
 * (rollgate_sandbox_refused_calls_total). Killing would be stricter against an intruder, but a call
 * that we forgot would then end a worker in the middle of its calls, again and again; a failed call
 * loses nothing.
 *
 * The supervisor itself has no filter. It forks and executes the next binary (upgrade), which would
 * lack every right that the supervisor has dropped. It reads no byte that comes from a client.
 */
#ifndef RG_SUPERVISOR_SANDBOX_H
#define RG_SUPERVISOR_SANDBOX_H

#include <stddef.h>

#include "common/base/err.h"

struct config;
struct heritage;

/* -1 with ERR_UNSUPPORTED when the kernel refuses a part; what it granted stays in force. */
int sandbox_enter(const struct heritage *h, struct err *e);

/* "on", "off", or what it lacks, for the start-up line. */
const char *sandbox_describe(const struct config *c);

/* "on" or "off": whether Landlock confines the children, for the same line. */
const char *sandbox_landlock(const struct config *c);

/* The name of a system call's number, for logs. */
void sandbox_call_name(int number, char *out, size_t size);

#endif
