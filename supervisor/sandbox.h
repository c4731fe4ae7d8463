/*
 * What a child gives up before it reads its first byte from outside, as far as the kernel allows:
 *   - new privileges (no_new_privs) and all capabilities, also those in the bounding set;
 *   - core dumps: they would hold prompts and keys (RLIMIT_CORE 0);
 *   - system calls that no router or worker needs, listed in sandbox.c: running programs, making
 *     processes, tracing, mounting, namespaces, kernel modules, BPF, keyrings, clocks, raw
 * hardware, changing users. They fail with EPERM. What stays: files within the process's own
 * rights, sockets, threads, memory, timers. The engine connections need name resolution and
 * sockets, the journal needs files, PCRE2's JIT needs executable memory; none of that is restricted
 * here (the systemd unit restricts more).
 */
#ifndef RG_SUPERVISOR_SANDBOX_H
#define RG_SUPERVISOR_SANDBOX_H

#include "common/base/err.h"

/* -1 with ERR_UNSUPPORTED when the kernel refuses a part; what it granted stays in force. */
int sandbox_enter(struct err *e);

#endif
