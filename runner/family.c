/*
 * Reads the stat line of every process of the machine once, then marks generation after
 * generation: who has a marked parent is marked. The cost is that of /proc, so it is paid at a
 * stop and at an end, not while a run goes on. What forks between reading and signalling is
 * missed; callers that must reach all signal again until none is left (keeper.c).
 */
#include "runner/family.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/vec.h"

struct relative {
    pid_t pid, parent;
    bool dead, ours;
};

/* Parent and state of a process from its stat line; false when it has gone. */
static bool look(pid_t pid, struct relative *ret)
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
    behind = strrchr(text, ')'); /* the name may hold anything */
    if (!behind || strlen(behind) < 5)
        return false;
    state = behind[2];
    parent = strtol(behind + 4, NULL, 10);
    *ret = (struct relative){pid, (pid_t)parent, state == 'Z' || state == 'X', false};
    return true;
}

struct relatives {
    struct relative *at;
    size_t n, cap;
};

/* All processes of the machine. */
static void look_at_all(struct relatives *all)
{
    DIR *proc = opendir("/proc");
    const struct dirent *d;

    while (proc && (d = readdir(proc))) {
        struct relative one;

        if (isdigit((unsigned char)d->d_name[0]) && look((pid_t)strtol(d->d_name, NULL, 10), &one))
            *vec_push(all) = one;
    }
    if (proc)
        (void)closedir(proc);
}

/* Whether its parent is root or one of those that are known as ours. */
static bool is_child(const struct relatives *all, const struct relative *one, pid_t root)
{
    bool child = one->parent == root;

    for (size_t k = 0; k < all->n && !child; k++)
        child = all->at[k].ours && all->at[k].pid == one->parent;
    return child;
}

/* Marks one more generation; false: there is none. */
static bool mark_ours(struct relatives *all, pid_t root, bool (*spare)(pid_t pid))
{
    bool more = false;

    for (size_t i = 0; i < all->n; i++) {
        struct relative *one = &all->at[i];

        if (is_child(all, one, root) && !one->ours && !(spare && spare(one->pid)))
            one->ours = more = true;
    }
    return more;
}

unsigned family_signal(pid_t root, int signo, bool (*spare)(pid_t pid))
{
    struct relatives all = {0};
    unsigned sent = 0;

    look_at_all(&all);
    while (mark_ours(&all, root, spare))
        ;
    for (size_t i = 0; i < all.n; i++) {
        if (!all.at[i].ours || all.at[i].dead)
            continue;
        sent++;
        (void)kill(all.at[i].pid, signo);
    }
    vec_done(&all);
    return sent;
}
