/* Implements --sink file:DIR: one file per session, moved there by one rename. If DIR is on a
 * different file system, a task copies the file into DIR under a temporary name (copy_file), then
 * renames the copy. With --durability power the copy and its name are on disk before the spooled
 * file is removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/sink/disk_wait.h"
#include "worker/sink/sink_target.h"

enum { COPY_STEP = 1 << 20 };

struct files {
    struct target *target;
    char *dir;
    char *part, *whole;    /* paths of the file that is sent */
    int from, to;          /* descriptors of the copy; -1: not open */
    struct disk_wait disk; /* --durability power: the first copy starts its thread */
};

/* Checks that DIR is writable if it exists. files_open makes a missing folder. */
static int files_check(struct str spec, struct err *e)
{
    char *dir = mem_strndup(spec.p ? spec.p : "", spec.len);
    int rc = 0;

    if (spec.len > 0 && access(dir, F_OK) == 0 && access(dir, W_OK | X_OK))
        rc = err_sys(e, ERR_CONFIG, "--sink file: cannot write to %s", dir);
    free(dir);
    return rc;
}

/* Opens the target. Without DIR, uses STATE/trajectories. */
static int files_open(struct target *t, struct str spec, struct err *e)
{
    struct files *f;
    struct buf dir = {0};

    if (spec.len > 0)
        buf_add_str(&dir, spec);
    else
        buf_printf(&dir, "%s/trajectories", t->env->state_dir);
    f = mem_zalloc(sizeof(*f));
    f->target = t;
    f->from = f->to = -1;
    f->dir = buf_take(&dir);
    if (mkdir(f->dir, 0700) && errno != EEXIST) {
        (void)err_sys(e, ERR_CONFIG, "--sink file: cannot make %s", f->dir);
        goto out;
    }
    if (access(f->dir, W_OK | X_OK)) {
        (void)err_sys(e, ERR_CONFIG, "--sink file: cannot write to %s", f->dir);
        goto out;
    }
    t->state = f;
    return 0;
out:
    free(f->dir);
    free(f);
    return -1;
}

static void close_copy(struct files *f)
{
    if (f->from >= 0)
        (void)close(f->from);
    if (f->to >= 0)
        (void)close(f->to);
    f->from = f->to = -1;
    free(f->part);
    free(f->whole);
    f->part = f->whole = NULL;
}

static void files_close(struct target *t)
{
    struct files *f = t->state;

    close_copy(f);
    disk_wait_done(&f->disk);
    free(f->dir);
    free(f);
}

/* Ends the sending of the file. why: the error; NULL: the file is in DIR. */
static void finish_file(struct files *f, const struct err *why)
{
    if (why)
        (void)unlink(f->part);
    close_copy(f);
    target_done(f->target, why);
}

/* Postpones the file, since a folder has its name in DIR. Other files do not wait for it. */
static void postpone_file(struct files *f)
{
    struct err e = {0};

    (void)err_set(&e, ERR_IO, "a folder stands at %s", f->whole);
    (void)unlink(f->part);
    close_copy(f);
    target_postpone(f->target, &e);
}

MAY_PAUSE static int copy_bytes(struct files *f, struct err *e)
{
    ssize_t n;

    while ((n = sendfile(f->to, f->from, NULL, COPY_STEP)) > 0)
        if (task_pause(e))
            return -1;
    if (n < 0)
        return err_sys(e, ERR_IO, "cannot copy to %s", f->part);
    return disk_wait_for(&f->disk, f->to, f->part, e);
}

/* Renames the copy to its final name. Sets *ret_taken and returns 0 if a folder has that name. */
MAY_PAUSE static int rename_to_target(struct files *f, bool *ret_taken, struct err *e)
{
    if (rename(f->part, f->whole)) {
        *ret_taken = errno == EISDIR;
        return *ret_taken ? 0 : err_sys(e, ERR_IO, "cannot rename to %s", f->whole);
    }
    return disk_wait_folder(&f->disk, f->dir, e);
}

static void copy_file(void *ctx)
{
    struct files *f = ctx;
    struct err e = {0};
    bool taken = false;

    if (copy_bytes(f, &e) == 0 && rename_to_target(f, &taken, &e) == 0) {
        if (taken)
            postpone_file(f);
        else
            finish_file(f, NULL);
    } else if (e.kind == ERR_CANCELLED) { /* the worker ends; the next start sends the file */
        (void)unlink(f->part);
        close_copy(f);
    } else {
        finish_file(f, &e);
    }
}

/* Starts the copy to a different file system. */
static void start_copy(struct files *f, const char *path)
{
    const struct target_env *env = f->target->env;
    struct err e = {0};

    if (env->durable && !f->disk.syncer && disk_wait_init(&f->disk, env->loop, &e)) {
        finish_file(f, &e);
        return;
    }
    f->from = open(path, O_RDONLY | O_CLOEXEC);
    f->to = f->from < 0 ? -1 : open(f->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f->to >= 0) {
        (void)task_start(env->tasks, STR("sinks"), copy_file, f);
        return;
    }
    (void)err_sys(&e, ERR_IO, "cannot copy to %s", f->part);
    finish_file(f, &e);
}

/* Renames the file into DIR. Makes DIR again if it was removed. */
static int move_file(const struct files *f, const char *path)
{
    if (rename(path, f->whole) == 0)
        return 0;
    if (errno != ENOENT || mkdir(f->dir, 0700))
        return -1;
    log_warn(NULL, "the folder of a sink was gone: made again", LOG_T("folder", f->dir));
    return rename(path, f->whole);
}

/* Moves the file to DIR/ID.msgpack. */
static void files_send(struct target *t, const char *path)
{
    struct files *f = t->state;
    struct buf name = {0};
    struct err e = {0};

    buf_printf(&name, "%s/.%s.part", f->dir, t->first->session_id);
    f->part = buf_take(&name);
    buf_printf(&name, "%s/%s.msgpack", f->dir, t->first->session_id);
    f->whole = buf_take(&name);
    if (move_file(f, path) == 0) {
        finish_file(f, NULL);
    } else if (errno == EXDEV) {
        start_copy(f, path);
    } else if (errno == EISDIR) {
        postpone_file(f);
    } else {
        (void)err_sys(&e, ERR_IO, "cannot rename to %s", f->whole);
        finish_file(f, &e);
    }
}

const struct target_kind target_file = {.name = "file",
                                        .check = files_check,
                                        .open = files_open,
                                        .send = files_send,
                                        .close = files_close};
