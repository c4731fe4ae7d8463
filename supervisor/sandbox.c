/* Removes a child's rights before it reads its first byte (sandbox.h): resource limits that it does
 * not need, new privileges by exec, files (landlock.c), capabilities, and system calls
 * (sandbox.def). The order matters, because each step may need what a later one removes.
 *
 * A refused call does not kill. It returns an error, is counted and is recorded on the board.
 * on_refused is a signal handler, so it only stores numbers. The supervisor logs the call by name.
 */

#include "supervisor/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "supervisor/landlock.h"

/* libseccomp's own macros leave out the last field. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code of SIGSYS, which the C library's headers lack */
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41 /* names anonymous memory; used by newer C libraries */
#endif

/* Kinds of processes. The dispatcher has the calls of a worker, because both keep a journal. */
enum {
    R = 1u << ROLE_ROUTER,
    W = 1u << ROLE_WORKER | 1u << ROLE_DISPATCHER | 1u << ROLE_KEEPER,
    B = R | W
};

/* Sanitizers trace a clone of the process and read /proc for it, and coverage counters are written
 * to the build folder. So a filter would prove little in such builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(RG_COVERAGE)
static const bool FILTER = false;
#else
static const bool FILTER = true;
#endif

struct allowed_call {
    const char *name;
    unsigned kinds;
};

static const struct allowed_call whole[] = {
#define CALL(name, kinds) {#name, kinds},
#include "supervisor/sandbox.def"
};

static const struct allowed_call partly[] = {
#define SOME(name, kinds) {#name, kinds},
#include "supervisor/sandbox.def"
};

/* --- refused calls: in the child, inside a signal handler --- */

static const struct heritage *self;
static int partly_numbers[ARRAY_LEN(partly)];

/* Sets the result of the refused call. */
#if defined(__x86_64__)
static const bool TOLD = true;

static void set_result(ucontext_t *u, int result)
{
    u->uc_mcontext.gregs[REG_RAX] = result;
}
#elif defined(__aarch64__)
static const bool TOLD = true;

static void set_result(ucontext_t *u, int result)
{
    u->uc_mcontext.regs[0] = (unsigned long long)(long long)result;
}
#else
static const bool TOLD = false; /* the kernel refuses calls without SIGSYS */

static void set_result(ucontext_t *u, int result)
{
    (void)u;
    (void)result;
}
#endif

/* Handles a refused call. Returns -EPERM for calls that are allowed with other arguments, so that
 * callers see that they lack a right. Returns -ENOSYS for all others, so that the C library uses a
 * different call. */
static void on_refused(int signo, siginfo_t *info, void *context)
{
    int result = -ENOSYS;

    (void)signo;
    if (info->si_code != SYS_SECCOMP)
        return;
    for (size_t i = 0; i < ARRAY_LEN(partly_numbers); i++) {
        if (info->si_syscall == partly_numbers[i])
            result = -EPERM;
    }
    atomic_store_explicit(&self->board->slots[self->slot].refused_call,
                          (uint32_t)info->si_syscall + 1, memory_order_relaxed);
    metrics_count(self->page, METRIC_sandbox_refused, 1);
    set_result(context, result);
}

static int watch_refusals(struct err *e)
{
    struct sigaction a = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&a.sa_mask);
    return sigaction(SIGSYS, &a, NULL) ? err_sys(e, ERR_UNSUPPORTED, "SIGSYS") : 0;
}

void sandbox_call_name(int number, char *out, size_t size)
{
    char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);

    (void)snprintf(out, size, "%s", name ? name : "unknown");
    free(name);
}

/* --- rights that are dropped --- */

/* Reports whether the process has capabilities. A service manager's filter may refuse the question;
 * then there are none left to drop. */
static bool has_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3] = {0};
    bool any = syscall(SYS_capget, &head, has) != 0;

    for (size_t i = 0; i < ARRAY_LEN(has); i++)
        any |= (has[i].permitted | has[i].effective | has[i].inheritable) != 0;
    return any;
}

/* Drops all capabilities. Fails only if some are left. */
static int drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

    /* Errors are ignored: without the right to empty the bounding set, the process cannot use the
     * set either. */
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, none) && has_capabilities())
        return err_sys(e, ERR_UNSUPPORTED, "cannot drop capabilities");
    return 0;
}

/* Forbids core files (they would contain prompts), locked memory, message queues and real-time
 * priorities. */
static int limit_resources(struct err *e)
{
    static const int none_of[] = {RLIMIT_CORE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_RTPRIO};
    static const struct rlimit zero = {0, 0};

    for (size_t i = 0; i < ARRAY_LEN(none_of); i++) {
        struct rlimit now;

        if (setrlimit((__rlimit_resource_t)none_of[i], &zero) &&
            (getrlimit((__rlimit_resource_t)none_of[i], &now) || now.rlim_max > 0))
            return err_sys(e, ERR_UNSUPPORTED, "resource limits");
    }
    return 0;
}

/* --- the filter --- */

static int allow(scmp_filter_ctx f, int number, struct scmp_arg_cmp arg)
{
    return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, number, 1, &arg);
}

/* Adds one rule for each value that the argument may have. */
static int allow_values(scmp_filter_ctx f, int number, unsigned arg, const scmp_datum_t *values)
{
    int rc = 0;

    for (; rc == 0 && *values; values++)
        rc = allow(f, number, SCMP_CMP32(arg, SCMP_CMP_EQ, (uint32_t)*values));
    return rc;
}

/* Allows sockets of TCP, UDP and unix, and the netlink protocol by which name resolution asks for
 * addresses. */
static int allow_sockets(scmp_filter_ctx f, int number)
{
    static const scmp_datum_t families[] = {AF_UNIX, AF_INET, AF_INET6, 0};
    struct scmp_arg_cmp netlink[] = {SCMP_CMP32(0, SCMP_CMP_EQ, AF_NETLINK),
                                     SCMP_CMP32(2, SCMP_CMP_EQ, 0)};
    int rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, number, 2, netlink);

    return rc ? rc : allow_values(f, number, 0, families);
}

static int allow_reading(scmp_filter_ctx f, int number, unsigned arg)
{
    return allow(f, number,
                 SCMP_CMP32(arg, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY));
}

/* Allows a call of the second list with certain arguments only. */
static int allow_partly(scmp_filter_ctx f, const char *name, int number)
{
    static const scmp_datum_t requests[] = {FIONREAD, FIONBIO, FIOCLEX, TCGETS, 0};
    static const scmp_datum_t options[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, 0};
    struct str n = str_cstr(name);

    if (str_eq_c(n, "ioctl"))
        return allow_values(f, number, 1, requests);
    if (str_eq_c(n, "prctl"))
        return allow_values(f, number, 0, options);
    if (str_eq_c(n, "socket"))
        return allow_sockets(f, number);
    if (str_eq_c(n, "open"))
        return allow_reading(f, number, 1);
    if (str_eq_c(n, "openat"))
        return allow_reading(f, number, 2);
    if (str_eq_c(n, "clone")) /* checks the flags */
        return allow(f, number,
                     SCMP_CMP(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_NEWUSER, CLONE_THREAD));
    /* helper threads lower their priority, so that the loop runs first */
    if (str_eq_c(n, "setpriority"))
        return seccomp_rule_add(f, SCMP_ACT_ALLOW, number, 2, SCMP_A0_32(SCMP_CMP_EQ, PRIO_PROCESS),
                                SCMP_A1_32(SCMP_CMP_EQ, 0));
    /* only its own limits, and only to read: the new limits are NULL */
    if (str_eq_c(n, "prlimit64"))
        return seccomp_rule_add(f, SCMP_ACT_ALLOW, number, 2, SCMP_A0_32(SCMP_CMP_EQ, 0),
                                SCMP_A2_64(SCMP_CMP_EQ, 0));
    /* kill and tgkill: only to the process itself */
    return allow(f, number, SCMP_CMP32(0, SCMP_CMP_EQ, (uint32_t)getpid()));
}

/* Adds the rules of a kind of process. Skips calls that this kernel does not have. */
static int add_rules(scmp_filter_ctx f, unsigned kind)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(whole); i++) {
        int number = seccomp_syscall_resolve_name(whole[i].name);

        if (number != __NR_SCMP_ERROR && (whole[i].kinds & kind))
            rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, number, 0);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(partly); i++) {
        int number = seccomp_syscall_resolve_name(partly[i].name);

        partly_numbers[i] = number;
        if (number != __NR_SCMP_ERROR && (partly[i].kinds & kind))
            rc = allow_partly(f, partly[i].name, number);
    }
    /* A filter cannot see the flags of clone3, so it always fails. The C library tries it first and
     * then uses clone. */
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    return rc;
}

/* Installs the filter for this process and its threads. */
static int filter_calls(unsigned kind, struct err *e)
{
    scmp_filter_ctx f = seccomp_init(TOLD ? SCMP_ACT_TRAP : SCMP_ACT_ERRNO(ENOSYS));
    int rc = -ENOMEM;

    if (f)
        rc = add_rules(f, kind);
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    errno = -rc;
    return rc ? err_sys(e, ERR_UNSUPPORTED, "no system call filter") : 0;
}

/* Continues after a failed step, so that as much protection as possible holds. Returns -1 if a step
 * has failed. */
int sandbox_enter(const struct heritage *h, struct err *e)
{
    int rc = 0;

    self = h;
    if (limit_resources(e))
        rc = -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        rc = err_sys(e, ERR_UNSUPPORTED, "no_new_privs");
    if (FILTER && landlock_enter(h, e))
        rc = -1;
    if (drop_capabilities(e))
        rc = -1;
    if (FILTER && (watch_refusals(e) || filter_calls(1u << h->role, e)))
        rc = -1;
    return rc;
}

const char *sandbox_landlock(const struct config *c)
{
    return c->sandbox && FILTER && landlock_here() ? "on" : "off";
}

const char *sandbox_describe(const struct config *c)
{
    if (!c->sandbox)
        return "off";
    return FILTER ? "on" : "on, but no system call filter (sanitizer build)";
}
