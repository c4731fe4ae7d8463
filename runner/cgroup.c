/*
 * Opening finds the group of this process by /proc/self/cgroup and the mount of cgroup2, ends the
 * runs of dead executors there, and makes a folder of its own. An executor locks its folder
 * (flock), and the kernel releases the lock when the process ends. So an unlocked folder belongs to
 * a dead executor, whatever its pid says.
 *
 * The own folder counts only if cgroup.kill can be written, that is, if the group is delegated to
 * us. If anything fails, `own.folder` stays NULL and all functions do nothing.
 */
#include "runner/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/os/file.h"

enum { LINE = 4096, REMOVE_TRIES = 50 };

/* This executor's folder. A process has only one. */
static struct {
    char *folder; /* NULL: the group is not delegated to us */
    int lock;
    unsigned runs;
} own;

/* Finds the mount point of cgroup2: the second word of the first line of /proc/self/mounts whose
 * third word is cgroup2. */
static bool find_mount(char ret[LINE])
{
    FILE *f = fopen("/proc/self/mounts", "re");
    char line[LINE], kind[64];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%*s %4095s %63s", ret, kind) == 2 && strcmp(kind, "cgroup2") == 0;
    if (f)
        (void)fclose(f);
    return found;
}

/* Finds our own group in the line "0::/PATH". */
static char *find_own(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[LINE], mount[LINE], *found = NULL;

    while (f && !found && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) == 0 && find_mount(mount))
            found = path_join(mount, line + 4);
    }
    if (f)
        (void)fclose(f);
    return found;
}

static int write_control_file(const char *folder, const char *name, const char *word)
{
    char *path = path_join(folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC), rc = -1;

    if (fd >= 0) {
        rc = write(fd, word, strlen(word)) < 0 ? -1 : 0;
        close(fd);
    }
    free(path);
    return rc;
}

/* Kills the processes in a folder's groups and removes the groups. A group can be removed when its
 * last process has ended, which takes a moment after the kill. So rmdir is repeated. */
static void kill_groups(const char *folder)
{
    const struct dirent *one;
    DIR *d;

    (void)write_control_file(folder, "cgroup.kill", "1");
    d = opendir(folder);
    while (d && (one = file_next_entry(d))) {
        char *path =
            one->d_type == DT_DIR && one->d_name[0] != '.' ? path_join(folder, one->d_name) : NULL;

        for (int i = 0; path && rmdir(path) && i < REMOVE_TRIES; i++)
            (void)usleep(10000);
        free(path);
    }
    (void)file_end_entries(d, folder);
    (void)rmdir(folder);
}

/* Removes the folders of dead executors, whose locks are free. */
static void end_leftovers(const char *group)
{
    DIR *d = opendir(group);
    const struct dirent *one;

    while (d && (one = file_next_entry(d))) {
        char *path;
        int fd;

        if (one->d_type != DT_DIR || strncmp(one->d_name, "rollgate-", 9) != 0)
            continue;
        path = path_join(group, one->d_name);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            log_info(NULL, "ending what an executor before left", LOG_T("cgroup", path));
            kill_groups(path);
        }
        if (fd >= 0)
            close(fd);
        free(path);
    }
    (void)file_end_entries(d, group);
}

void cgroup_open(void)
{
    char *group = find_own(), name[48], *folder, *killer;

    if (!group)
        return;
    end_leftovers(group);
    (void)snprintf(name, sizeof(name), "rollgate-%d", (int)getpid());
    folder = path_join(group, name);
    killer = path_join(folder, "cgroup.kill");
    own.lock = mkdir(folder, 0755) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (own.lock >= 0 && flock(own.lock, LOCK_EX | LOCK_NB) == 0 && access(killer, W_OK) == 0)
        own.folder = folder;
    else if (own.lock >= 0)
        (void)rmdir(folder);
    if (!own.folder && own.lock >= 0)
        close(own.lock);
    if (!own.folder)
        free(folder);
    free(killer);
    free(group);
}

char *cgroup_make(void)
{
    char name[24], *path;

    if (!own.folder)
        return NULL;
    (void)snprintf(name, sizeof(name), "%u", own.runs++);
    path = path_join(own.folder, name);
    if (mkdir(path, 0755) == 0)
        return path;
    free(path);
    return NULL;
}

void cgroup_enter(const char *path)
{
    if (path)
        (void)write_control_file(path, "cgroup.procs", "0");
}

void cgroup_kill(const char *path)
{
    if (path)
        (void)write_control_file(path, "cgroup.kill", "1");
}

void cgroup_remove(char *path)
{
    if (path)
        (void)rmdir(path);
    free(path);
}

void cgroup_close(void)
{
    if (!own.folder)
        return;
    kill_groups(own.folder);
    close(own.lock);
    free(own.folder);
    own.folder = NULL;
}
