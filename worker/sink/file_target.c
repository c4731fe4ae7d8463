/* --sink file:DIR: one file per session, put there by one rename. From another file system that
 * cannot be: then the file is copied beside its place in slices (on_copy), synced with
 * durability power, renamed, and the folder synced, before the spooled one may go. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/syncer.h"
#include "common/os/loop.h"
#include "worker/sink/sink_target.h"

enum { COPY_STEP = 1 << 20 };

struct files {
    struct target *target;
    char *dir;
    /* a copy under way, to another file system */
    int from, to; /* once it has its name, `to` is the folder */
    char *part, *whole;
    struct loop_task later;
    struct syncer *syncer; /* durability power: made by the first copy */
    uint64_t ticket;       /* waited for; 0: none */
    bool named;
};

/* A folder that does not exist may be made. */
static int files_check(struct str spec, struct err *e)
{
    char *dir = mem_strndup(spec.p ? spec.p : "", spec.len);
    int rc = 0;

    if (spec.len > 0 && access(dir, F_OK) == 0 && access(dir, W_OK | X_OK))
        rc = err_sys(e, ERR_CONFIG, "--sink file: cannot write to %s", dir);
    free(dir);
    return rc;
}

/* Without DIR: state folder/trajectories. */
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

/* Whatever is under way ends. */
static void close_copy(struct files *f)
{
    loop_task_cancel(f->target->env->loop, &f->later);
    if (f->from >= 0)
        (void)close(f->from);
    if (f->to >= 0)
        (void)close(f->to);
    f->from = f->to = -1;
    f->ticket = 0;
    f->named = false;
    free(f->part);
    free(f->whole);
    f->part = f->whole = NULL;
}

/* A copy that is under way leaves its part behind. */
static void files_close(struct target *t)
{
    struct files *f = t->state;

    close_copy(f);
    syncer_free(f->syncer);
    free(f->dir);
    free(f);
}

/* why NULL: it is there. */
static void done(struct files *f, const struct err *why)
{
    struct target *t = f->target;

    if (why && f->part)
        (void)unlink(f->part);
    close_copy(f);
    target_done(t, why);
}

static void fail(struct files *f, const char *what, const char *path)
{
    struct err e = {0};

    (void)err_sys(&e, ERR_IO, "%s %s", what, path);
    done(f, &e);
}

/* The spool is on another disk: the new name must be on this one before the spooled file goes. */
static void sync_folder(struct files *f)
{
    (void)close(f->to);
    f->named = true;
    f->to = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->to < 0)
        fail(f, "cannot sync", f->dir);
    else
        f->ticket = syncer_ask(f->syncer, f->to);
}

/* Somebody put a folder where this session's file goes: it waits, and others do not wait for it. */
static void name_taken(struct files *f)
{
    struct target *t = f->target;
    struct err e = {0};

    (void)err_set(&e, ERR_IO, "a folder stands at %s", f->whole);
    if (f->to >= 0)
        (void)unlink(f->part);
    close_copy(f);
    target_postpone(t, &e);
}

/* The copy is whole. */
static void give_name(struct files *f)
{
    bool gone_wrong = rename(f->part, f->whole) != 0;

    if (gone_wrong && errno == EISDIR)
        name_taken(f);
    else if (gone_wrong)
        fail(f, "cannot rename to", f->whole);
    else if (f->syncer)
        sync_folder(f);
    else
        done(f, NULL);
}

/* The copy's bytes, or its name in the folder. */
static void on_synced(void *ctx, uint64_t ticket, int failed, uint64_t took_us)
{
    struct files *f = ctx;

    (void)took_us;
    if (f->ticket == 0 || ticket < f->ticket)
        return;
    f->ticket = 0;
    errno = failed;
    if (failed)
        fail(f, "cannot sync", f->named ? f->dir : f->part);
    else if (f->named)
        done(f, NULL);
    else
        give_name(f);
}

/* A step of the copy. */
static void on_copy(struct loop_task *task)
{
    struct files *f = CONTAINER_OF(task, struct files, later);
    ssize_t n = sendfile(f->to, f->from, NULL, COPY_STEP);

    if (n > 0)
        loop_task_post(f->target->env->loop, &f->later, on_copy);
    else if (n < 0)
        fail(f, "cannot copy to", f->part);
    else if (f->syncer)
        f->ticket = syncer_ask(f->syncer, f->to);
    else
        give_name(f);
}

/* The folder is on another file system. */
static void start_copy(struct files *f, const char *path)
{
    const struct target_env *env = f->target->env;
    struct err e = {0};

    if (env->durable && !f->syncer && syncer_new(env->loop, on_synced, f, &f->syncer, &e)) {
        done(f, &e);
        return;
    }
    f->from = open(path, O_RDONLY | O_CLOEXEC);
    f->to = f->from < 0 ? -1 : open(f->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f->to < 0)
        fail(f, "cannot copy to", f->part);
    else
        loop_task_post(env->loop, &f->later, on_copy);
}

/* Its folder may have been taken away, and is made again then. */
static int move(const struct files *f, const char *path)
{
    if (rename(path, f->whole) == 0)
        return 0;
    if (errno != ENOENT || mkdir(f->dir, 0700))
        return -1;
    log_warn(NULL, "the folder of a sink was gone: made again", LOG_T("folder", f->dir));
    return rename(path, f->whole);
}

/* As ID.msgpack. */
static void files_send(struct target *t, const char *path)
{
    struct files *f = t->state;
    struct buf name = {0};

    buf_printf(&name, "%s/.%s.part", f->dir, t->first->session_id);
    f->part = buf_take(&name);
    buf_printf(&name, "%s/%s.msgpack", f->dir, t->first->session_id);
    f->whole = buf_take(&name);
    if (move(f, path) == 0)
        done(f, NULL);
    else if (errno == EXDEV)
        start_copy(f, path);
    else if (errno == EISDIR)
        name_taken(f);
    else
        fail(f, "cannot rename to", f->whole);
}

const struct target_kind target_file = {.name = "file",
                                        .check = files_check,
                                        .open = files_open,
                                        .send = files_send,
                                        .close = files_close};
