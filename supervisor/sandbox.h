/*
 * Removes a child's rights before it reads its first byte from outside, as far as the kernel
 * permits:
 *   - new privileges (no_new_privs) and all capabilities, including the bounding set;
 *   - core dumps (they would contain prompts and keys), locked memory, message queues and real-time
 *     priorities: RLIMITs of 0;
 *   - the file system except for what landlock.h lists, if the kernel has Landlock;
 *   - all system calls that its kind of process does not need: sandbox.def lists the needed ones.
 *
 * A refused call fails: with EPERM if only its arguments are not allowed, otherwise with ENOSYS, so
 * that the C library tries a different call. It is reported, too. The kernel sends SIGSYS, whose
 * handler counts the call (rollgate_sandbox_refused_calls_total) and records it on the board for
 * the supervisor's log. Killing would be stricter against an intruder. But a call that we forgot
 * would then end a worker in the middle of its calls, again and again; a failed call loses nothing.
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

/* Removes the rights. Returns -1 with ERR_UNSUPPORTED if the kernel refuses a step; the other steps
 * still hold. */
int sandbox_enter(const struct heritage *h, struct err *e);

/* Returns "on", "off", or what is missing, for the start-up line. */
const char *sandbox_describe(const struct config *c);

/* Returns "on" or "off": whether Landlock confines the children, for the same line. */
const char *sandbox_landlock(const struct config *c);

/* Writes the name of a system call, for logs. */
void sandbox_call_name(int number, char *out, size_t size);

#endif
