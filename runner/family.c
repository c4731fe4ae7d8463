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

unsigned family_signal(pid_t root, int signo, bool (*spare)(pid_t pid))
{
    VEC(struct relative) all = {0};
    DIR *proc = opendir("/proc");
    const struct dirent *d;
    unsigned sent = 0;
    bool more = true;

    while (proc && (d = readdir(proc))) {
        struct relative one;

        if (isdigit((unsigned char)d->d_name[0]) && look((pid_t)strtol(d->d_name, NULL, 10), &one))
            *vec_push(&all) = one;
    }
    if (proc)
        (void)closedir(proc);
    while (more) {
        more = false;
        for (size_t i = 0; i < all.n; i++) {
            bool child = all.at[i].parent == root;

            for (size_t k = 0; k < all.n && !child; k++)
                child = all.at[k].ours && all.at[k].pid == all.at[i].parent;
            if (!child || all.at[i].ours || (spare && spare(all.at[i].pid)))
                continue;
            all.at[i].ours = more = true;
        }
    }
    for (size_t i = 0; i < all.n; i++) {
        if (!all.at[i].ours || all.at[i].dead)
            continue;
        sent++;
        (void)kill(all.at[i].pid, signo);
    }
    vec_done(&all);
    return sent;
}
