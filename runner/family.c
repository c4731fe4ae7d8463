/*
 * Reads the stat line of every process of the machine once. Then goes from each process up to root,
 * or to a process whose kinship is known. Reading /proc is expensive, so it happens when a run
 * stops or ends, not while it runs. A process that is forked between reading and signalling is
 * missed. A caller that must reach all processes signals again until none is left (job.c).
 */
#include "runner/family.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/vec.h"
#include "common/os/file.h"

/* Reads parent and state of a process from its stat line. Returns false if it has ended. */
static bool read_stat(pid_t pid, struct relative *ret)
{
    char path[48], text[512], state;
    const char *behind;
    ssize_t n;
    long parent;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    behind = strrchr(text, ')'); /* the name may contain any character */
    if (!behind || strlen(behind) < 5)
        return false;
    state = behind[2];
    parent = strtol(behind + 4, NULL, 10);
    *ret = (struct relative){pid, (pid_t)parent, state == 'Z' || state == 'X', KIN_UNKNOWN};
    return true;
}

struct relatives {
    struct relative *at;
    size_t n, cap;
};

/* Reads all processes of the machine. */
static void read_processes(struct relatives *all)
{
    DIR *proc = opendir("/proc");
    const struct dirent *d;

    while (proc && (d = file_next_entry(proc))) {
        struct relative one;

        if (isdigit((unsigned char)d->d_name[0]) &&
            read_stat((pid_t)strtol(d->d_name, NULL, 10), &one))
            *vec_push(all) = one;
    }
    (void)file_end_entries(proc, "/proc");
}

static int by_pid(const void *a, const void *b)
{
    const struct relative *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Finds the kinship as far as it is known without the parent. If a process is visited twice, it
 * seems to be its own ancestor: its parent's pid was reused during the reading. */
static enum kinship find_kinship(const struct relative *one, pid_t root, bool (*spare)(pid_t pid))
{
    if (one->kin != KIN_UNKNOWN)
        return one->kin == KIN_ASKED ? KIN_OTHERS : one->kin;
    if (spare && spare(one->pid))
        return KIN_OTHERS;
    return one->parent == root ? KIN_OURS : KIN_UNKNOWN;
}

void family_find(struct relative *all, size_t n, pid_t root, bool (*spare)(pid_t pid))
{
    VEC(struct relative *) path = {0};

    if (n > 0)
        qsort(all, n, sizeof(*all), by_pid);
    for (size_t i = 0; i < n; i++) {
        struct relative *one = &all[i];
        enum kinship kin = KIN_UNKNOWN;

        while (one && (kin = find_kinship(one, root, spare)) == KIN_UNKNOWN) {
            struct relative parent = {.pid = one->parent};

            one->kin = KIN_ASKED;
            *vec_push(&path) = one;
            one = bsearch(&parent, all, n, sizeof(*all), by_pid);
        }
        if (one)
            *vec_push(&path) = one;
        while (path.n > 0)
            path.at[--path.n]->kin = kin == KIN_OURS ? KIN_OURS : KIN_OTHERS;
    }
    vec_done(&path);
}

unsigned family_signal(pid_t root, int signo, bool (*spare)(pid_t pid))
{
    struct relatives all = {0};
    unsigned sent = 0;

    read_processes(&all);
    family_find(all.at, all.n, root, spare);
    for (size_t i = 0; i < all.n; i++) {
        if (all.at[i].kin != KIN_OURS || all.at[i].dead)
            continue;
        sent++;
        (void)kill(all.at[i].pid, signo);
    }
    vec_done(&all);
    return sent;
}
