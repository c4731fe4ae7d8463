#include "supervisor/sandbox.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The refused calls. clone is refused without CLONE_THREAD; clone3, whose flags a filter cannot
 * see, answers ENOSYS, upon which the C library falls back to clone. */
static const char *const refused[] = {
    /* programs and processes */
    "execve",
    "execveat",
    "fork",
    "vfork",
    /* other processes */
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "kcmp",
    "pidfd_getfd",
    /* file systems and namespaces */
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "fsopen",
    "fsmount",
    "fsconfig",
    "fspick",
    "move_mount",
    "open_tree",
    "mount_setattr",
    "swapon",
    "swapoff",
    "quotactl",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "mknod",
    "mknodat",
    /* the kernel */
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "reboot",
    "syslog",
    "lookup_dcookie",
    "acct",
    /* keyrings */
    "add_key",
    "request_key",
    "keyctl",
    /* the machine's clock, name and hardware */
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "stime",
    "sethostname",
    "setdomainname",
    "iopl",
    "ioperm",
    "modify_ldt",
    "vm86",
    "vhangup",
    /* users and privileges */
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "setfsuid",
    "setfsgid",
    "capset",
    "personality",
};

#if defined(__SANITIZE_ADDRESS__)
/* LeakSanitizer looks for leaks from a traced clone of the process. */
static const bool LEAK_CHECKER = true;
#else
static const bool LEAK_CHECKER = false;
#endif

static int drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

    /* The bounding set can only be emptied by who may; without that right it is of no use anyway.
     */
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, none))
        return err_sys(e, ERR_UNSUPPORTED, "cannot drop capabilities");
    return 0;
}

static int add_rules(scmp_filter_ctx filter)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(refused); i++) {
        int number = seccomp_syscall_resolve_name(refused[i]);

        if (number == __NR_SCMP_ERROR || (LEAK_CHECKER && strcmp(refused[i], "ptrace") == 0))
            continue; /* the architecture has no such call */
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
    }
    if (rc == 0 && !LEAK_CHECKER)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    return rc;
}

static int filter_calls(struct err *e)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int rc = -ENOMEM;

    if (filter)
        rc = add_rules(filter);
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    errno = -rc;
    return rc ? err_sys(e, ERR_UNSUPPORTED, "no system call filter") : 0;
}

int sandbox_enter(struct err *e)
{
    static const struct rlimit no_core = {0, 0};
    int rc = 0;

    if (setrlimit(RLIMIT_CORE, &no_core))
        rc = err_sys(e, ERR_UNSUPPORTED, "cannot forbid core dumps");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        rc = err_sys(e, ERR_UNSUPPORTED, "no_new_privs");
    if (drop_capabilities(e))
        rc = -1;
    if (filter_calls(e))
        rc = -1;
    return rc;
}
