/*
 * An attempt takes a spare folder by two renames, the input file first. If either fails, the spare
 * is removed and the next one is tried. A spare is a folder that a run left as it was made: owner,
 * mode, one link, no attributes, empty. The next attempt must not see a trace of an earlier one.
 *
 * Removal is unlink and rmdir. What these cannot remove is left to `rm -rf` in a job, so the loop
 * does not wait for a large tree. The lock on WORK is exclusive only while leftovers are searched,
 * then shared. An executor that cannot get it exclusively removes nothing.
 */
#include "runner/workplace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/file.h"
#include "common/os/file_lock.h"
#include "runner/execution.h"

enum {
    SPARES_MAX = 256,
    TIDY_MS = 1000,
    /* time for which an unused lock may still be kept by a dead executor's child */
    ALONE_MS = 1000,
    ALONE_GAP_MS = 10,
    FOLDER_MODE = 0700,
    INPUT_MODE = 0600,
    /* length of an attempt's id, hexadecimal */
    ATTEMPT_DIGITS = 32
};

static char *path_in_work(const struct workplaces *w, const char *name, const char *suffix)
{
    struct buf out = {0};

    buf_printf(&out, "%s/%s%s", w->x->options->work, name, suffix);
    return buf_take(&out);
}

static void free_workplace(struct workplace *place)
{
    free(place->folder);
    free(place->input);
    *place = (struct workplace){0};
}

/* --- removal --- */

/* An `rm -rf` of one path. */
struct removal {
    struct executor *x;
    char *path;
};

static void on_output(void *ctx, bool is_error, struct str bytes)
{
    const struct removal *r = ctx;

    (void)is_error;
    log_warn(NULL, "a working folder cannot be removed", LOG_T("folder", r->path),
             LOG_S("reason", str_sub(bytes, 0, 300)));
}

static void on_removed(void *ctx, const struct job_end *end)
{
    struct removal *r = ctx;
    struct executor *x = r->x;

    (void)end;
    free(r->path);
    free(r);
    x->busy--;
    executor_slot_free(x);
}

static void remove_tree(struct executor *x, const char *path)
{
    static const struct job_events events = {on_output, on_removed};
    static char variable[] = "PATH=" SURROUNDINGS_PATH;
    struct removal *r = mem_zalloc(sizeof(*r));
    struct job *job;
    struct err e;

    *r = (struct removal){x, mem_strdup(path)};

    char *argv[] = {(char[]){"rm"}, (char[]){"-rf"}, (char[]){"--"}, r->path, NULL};
    char *envp[] = {variable, NULL};
    struct job_spec spec = {.argv = argv, .envp = envp, .folder = "/", .grace_ms = 0};

    x->busy++;
    if (job_start(x->loop, &spec, &events, r, &job, &e) == 0)
        return;
    log_warn(NULL, "a working folder cannot be removed", LOG_T("folder", path),
             LOG_T("reason", e.text));
    x->busy--;
    free(r->path);
    free(r);
}

static void remove_workplace(struct workplaces *w, struct workplace *place)
{
    if (place->input)
        (void)unlink(place->input);
    if (place->folder && rmdir(place->folder) && errno != ENOENT)
        remove_tree(w->x, place->folder);
    free_workplace(place);
}

/* --- spares --- */

static bool is_as_made(const char *path, mode_t kind, mode_t mode)
{
    struct stat st;

    return lstat(path, &st) == 0 && (st.st_mode & (mode_t)(S_IFMT | 07777)) == (kind | mode) &&
           st.st_uid == geteuid() && (kind == S_IFDIR || st.st_nlink == 1);
}

/* Reports whether a file has extended attributes that a run can have set, including access
 * lists. */
static bool has_attributes(const char *path)
{
    static const char *const ours[] = {"security.selinux", "security.SMACK64", "security.apparmor",
                                       /* attributes that the system sets */
                                       "security.ima", "security.evm"};
    char names[4096];
    ssize_t n = listxattr(path, names, sizeof(names));

    if (n < 0)
        return errno != ENOTSUP;
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        size_t k = 0;

        while (k < ARRAY_LEN(ours) && strcmp(name, ours[k]) != 0)
            k++;
        if (k == ARRAY_LEN(ours))
            return true;
    }
    return false;
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *one;
    bool empty = d != NULL;

    while (d && empty && (one = file_next_entry(d)))
        empty = strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0;
    return file_end_entries(d, path) == 0 && empty;
}

static void remove_spares(struct workplaces *w)
{
    while (w->spares.n > 0)
        remove_workplace(w, &vec_pop(&w->spares));
    vec_done(&w->spares);
}

static void remove_leftovers(struct workplaces *w)
{
    for (size_t i = 0; i < w->leftovers.n; i++) {
        char *path = w->leftovers.at[i];

        if (unlink(path) && errno != ENOENT && rmdir(path) && errno != ENOENT)
            remove_tree(w->x, path);
        free(path);
    }
    vec_done(&w->leftovers);
}

static void on_tidy(struct loop_timer *t)
{
    struct workplaces *w = CONTAINER_OF(t, struct workplaces, tidy);

    remove_leftovers(w);
    if (list_is_empty(&w->x->attempts))
        remove_spares(w);
    else
        loop_timer_set(w->x->loop, &w->tidy, TIDY_MS, on_tidy);
}

void workplace_leave(struct workplaces *w, struct workplace *place, bool ended_well)
{
    if (!ended_well || w->x->draining || w->spares.n >= SPARES_MAX || !place->folder ||
        !place->input || !is_as_made(place->folder, S_IFDIR, FOLDER_MODE) ||
        !is_as_made(place->input, S_IFREG, INPUT_MODE) || has_attributes(place->folder) ||
        has_attributes(place->input) || !is_empty(place->folder)) {
        remove_workplace(w, place);
        return;
    }
    *vec_push(&w->spares) = *place;
    *place = (struct workplace){0};
    loop_timer_set(w->x->loop, &w->tidy, TIDY_MS, on_tidy);
}

/* --- making --- */

static int write_input(const char *path, int flags, struct str text, struct err *e)
{
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, INPUT_MODE);
    int rc = 0;

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot make %s", path);
    if (file_write_all(fd, text) || (!(flags & O_CREAT) && ftruncate(fd, (off_t)text.len)))
        rc = err_sys(e, ERR_IO, "cannot write %s", path);
    if (close(fd) && rc == 0)
        rc = err_sys(e, ERR_IO, "cannot write %s", path);
    return rc;
}

/* Renames a spare to the attempt's name. Returns false if no spare can be used. */
static bool rename_spare(struct workplaces *w, const struct workplace *to)
{
    while (w->spares.n > 0) {
        struct workplace from = vec_pop(&w->spares);

        if (rename(from.input, to->input) == 0) {
            if (rename(from.folder, to->folder) == 0) {
                free_workplace(&from);
                return true;
            }
            (void)unlink(to->input);
        }
        remove_workplace(w, &from);
    }
    return false;
}

int workplace_make(struct workplaces *w, const char *attempt, struct str input,
                   struct workplace *ret, struct err *e)
{
    struct workplace place = {path_in_work(w, attempt, ""), path_in_work(w, attempt, ".json")};
    bool spare = rename_spare(w, &place);

    *ret = (struct workplace){0};
    if (!spare && mkdir(place.folder, FOLDER_MODE)) {
        (void)err_sys(e, ERR_IO, "cannot make %s", place.folder);
        free_workplace(&place);
        return -1;
    }
    /* the caller removes it from here on, even after an error */
    *ret = place;
    return write_input(place.input, spare ? O_NONBLOCK : O_CREAT | O_EXCL, input, e);
}

/* --- leftovers --- */

/* Matches an attempt's id, with or without ".json". */
static bool is_attempt_name(const char *name)
{
    size_t n = strspn(name, "0123456789abcdef");

    return n == ATTEMPT_DIGITS && (name[n] == '\0' || strcmp(name + n, ".json") == 0);
}

static void find_leftovers(struct workplaces *w)
{
    DIR *d = opendir(w->x->options->work);
    const struct dirent *one;

    while (d && (one = file_next_entry(d)))
        if (is_attempt_name(one->d_name))
            *vec_push(&w->leftovers) = path_in_work(w, one->d_name, "");
    (void)file_end_entries(d, w->x->options->work);
    if (w->leftovers.n == 0)
        return;
    log_info(NULL, "removing what an executor before left", LOG_T("folder", w->x->options->work),
             LOG_U("files", w->leftovers.n));
    loop_timer_set(w->x->loop, &w->tidy, TIDY_MS, on_tidy);
}

/* Reports whether no other executor works in WORK. A dead executor's lock remains until a process
 * that it had just forked has closed the inherited descriptor. So the lock is tried for a while. */
static bool lock_alone(int fd, const char *work)
{
    const struct timespec gap = {0, ALONE_GAP_MS * 1000000L};
    uint64_t end_ms = clock_ms() + ALONE_MS;
    int rc;

    while ((rc = file_lock_try(fd, false)) > 0) {
        if (clock_ms() >= end_ms)
            return false;
        (void)nanosleep(&gap, NULL);
    }
    if (rc < 0)
        log_warn(NULL,
                 "the file system of the working folder refuses locks, so what executors before "
                 "left is not removed",
                 LOG_T("folder", work), LOG_T("error", strerror(errno)));
    return rc == 0;
}

int workplaces_open(struct workplaces *w, struct executor *x, struct err *e)
{
    const char *work = x->options->work;

    w->x = x;
    w->lock = -1;
    if (mkdir(work, 0777) && errno != EEXIST)
        return err_sys(e, ERR_IO, "cannot make the folder %s", work);
    w->lock = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->lock < 0)
        return err_sys(e, ERR_IO, "cannot open the folder %s", work);
    if (lock_alone(w->lock, work))
        find_leftovers(w);
    /* other executors may work here; this lock keeps them from removing leftovers */
    (void)file_lock_try(w->lock, true);
    return 0;
}

void workplaces_drain(struct workplaces *w)
{
    loop_timer_stop(w->x->loop, &w->tidy);
    remove_spares(w);
}

void workplaces_close(struct workplaces *w)
{
    if (!w->x)
        return;
    for (size_t i = 0; i < w->leftovers.n; i++)
        free(w->leftovers.at[i]);
    vec_done(&w->leftovers);
    if (w->lock >= 0)
        close(w->lock);
}
