/* Checks whether the machine is suitable for the gateway. Each check adds one finding. A
 * shortage that stops the gateway is an error. A shortage that makes it smaller or less safe is
 * a warning. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/os/file_lock.h"
#include "common/proc/config.h"
#include "router/router.h"
#include "supervisor/doctor.h"
#include "supervisor/sandbox.h"

enum {
    FILES_MIN = 1024,  /* with fewer, a gateway with its workers runs out of descriptors at once */
    FILES_GOOD = 16384 /* enough for some thousand connections of a router */
};

static const double MIB = 1048576;

/* Returns the number in a small file, such as those of /proc and cgroups; -1: it has no number. */
static long long read_small_number(const char *path)
{
    FILE *f = fopen(path, "re");
    char text[64] = "", *end;
    long long n;

    if (!f)
        return -1;
    if (!fgets(text, sizeof(text), f))
        text[0] = 0;
    (void)fclose(f);
    n = strtoll(text, &end, 10);
    return end == text ? -1 : n;
}

static void check_kernel(struct doctor *d)
{
    struct utsname u = {0};
    const char *landlock = sandbox_landlock(d->config);
    long long backlog = read_small_number("/proc/sys/net/core/somaxconn");
    bool bare = d->config->sandbox && strcmp(landlock, "on") != 0;

    (void)uname(&u);
    doctor_add(d, "kernel", bare ? FINDING_WARNING : FINDING_OK,
               bare ? "boot a kernel from 5.13 on with lsm=landlock, or accept that processes can "
                      "read the files of their user"
                    : NULL,
               "%s, sandbox %s, Landlock %s", u.release, sandbox_describe(d->config), landlock);
    if (backlog >= 0 && backlog < 4096)
        doctor_add(d, "backlog", FINDING_WARNING, "sysctl -w net.core.somaxconn=4096",
                   "only %lld connections can wait to be accepted", backlog);
}

static void check_files(struct doctor *d)
{
    struct rlimit r = {0};
    size_t capacity;
    bool few, good;

    (void)getrlimit(RLIMIT_NOFILE, &r);
    capacity = router_capacity((size_t)MIN_OF(r.rlim_max, (rlim_t)1 << 30));
    few = r.rlim_max < FILES_MIN;
    good = r.rlim_max >= FILES_GOOD && (int64_t)capacity >= d->config->max_connections;
    doctor_add(d, "descriptors", few ? FINDING_ERROR : (good ? FINDING_OK : FINDING_WARNING),
               few || !good ? "raise the hard limit: LimitNOFILE=1048576 in the unit, `ulimit -Hn` "
                              "in a shell"
                            : NULL,
               "%llu for each process: %zu connections a router", (unsigned long long)r.rlim_max,
               capacity);
}

static void check_processors(struct doctor *d)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
    bool many = d->config->workers > 2 * (int64_t)n;
    char cure[64];

    (void)snprintf(cure, sizeof(cure), "--workers %d", n);
    doctor_add(d, "processors", many ? FINDING_WARNING : FINDING_OK, many ? cure : NULL,
               "%d for %lld workers and %lld routers", n, (long long)d->config->workers,
               (long long)d->config->routers);
}

/* Returns the memory that this process may use: the machine's, or that of its cgroup. */
static double memory_bytes(void)
{
    double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};

    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        long long limit = read_small_number(limits[i]);

        if (limit > 0)
            all = MIN_OF(all, (double)limit);
    }
    return all;
}

static void check_memory(struct doctor *d)
{
    const struct config *c = d->config;
    double all = memory_bytes();
    double wanted = (double)c->max_worker_memory * (double)c->workers;
    char cure[96];

    if (c->max_worker_memory == 0) {
        doctor_add(d, "memory", FINDING_OK, NULL,
                   "%.0f MiB; --max-worker-memory is not set, so workers may use all", all / MIB);
        return;
    }
    (void)snprintf(cure, sizeof(cure), "--max-worker-memory %.0fMiB",
                   all * 0.75 / MIB / (double)c->workers);
    doctor_add(d, "memory", wanted > all ? FINDING_ERROR : FINDING_OK, wanted > all ? cure : NULL,
               "%.0f MiB, of which workers may use %.0f", all / MIB, wanted / MIB);
}

/* Returns the folder, or the nearest existing one above it; the caller frees it. */
static char *nearest_folder(const char *path)
{
    char *at = mem_strdup(path), *slash;

    while (access(at, F_OK) && (slash = strrchr(at, '/')))
        slash[slash == at] = 0; /* the first slash is kept */
    return at;
}

/* Makes a file in the folder and locks it, as the gateway does. Returns 0, -1 with errno if no file
 * can be made, or 1 if the file cannot be locked. */
static int try_lock(const char *folder)
{
    struct buf path = {0};
    int fd, rc = -1;

    buf_printf(&path, "%s/.doctor-XXXXXX%c", folder, 0);
    fd = mkostemp(path.p, O_CLOEXEC);
    if (fd >= 0) {
        rc = file_lock_try(fd, false) == 0 ? 0 : 1;
        (void)unlink(path.p);
        close(fd);
    }
    buf_done(&path);
    return rc;
}

static void check_disk(struct doctor *d)
{
    const struct config *c = d->config;
    char *folder = nearest_folder(c->state_dir);
    struct statvfs s = {0};
    int locked = try_lock(folder), failure = errno;
    double available = 0;

    if (statvfs(folder, &s) == 0)
        available = (double)s.f_bavail * (double)s.f_frsize;
    if (locked < 0)
        doctor_add(d, "disk", FINDING_ERROR,
                   "give the folder to the gateway's user, or set --state-dir",
                   "%s cannot be written: %s", folder, strerror(failure));
    else if (locked && !c->unlocked_state)
        doctor_add(d, "disk", FINDING_ERROR,
                   "use a local disk; or --unlocked-state, if no second gateway has the folder",
                   "%s: the file system refuses locks", folder);
    else if (available < (double)c->journal_min_free)
        doctor_add(d, "disk", FINDING_ERROR, "free space, or set --state-dir to a larger disk",
                   "%.0f MiB are free for %s, and new sessions need %.0f (--journal-min-free)",
                   available / MIB, c->state_dir, (double)c->journal_min_free / MIB);
    else
        doctor_add(d, "disk", FINDING_OK, NULL, "%.0f MiB are free for %s", available / MIB,
                   c->state_dir);
    free(folder);
}

void doctor_check_machine(struct doctor *d)
{
    check_kernel(d);
    check_files(d);
    check_processors(d);
    check_memory(d);
    check_disk(d);
}
