/*
 * A target's queue of spooled files (sink_target.h). send_first sends the first file. target_done
 * removes it, or keeps it for a later attempt, after growing pauses. Files wait in the order in
 * which they were made, also after a restart (target_scan sorts by time). A file that only its
 * target rejects moves to the end (target_postpone). A damaged file is renamed and skipped
 * (put_aside).
 *
 *   target_add -> queue -> send_first -> kind->send -> target_done: unlink, next
 *                                                   `-> target_postpone: to the end
 */

#include "worker/sink/sink_target.h"
#include "worker/sink/spooled.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/session_rules.h"
#include "common/os/file.h"
#include "common/os/loop.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"

enum { DELAY_MIN_MS = 100, DELAY_MAX_MS = 30 * 1000 };

static const char SUFFIX[] = ".msgpack";

#define PART_SUFFIX ".part"

static const struct target_kind *const kinds[] = {&target_file, &target_redis};

/* Returns the kind of a setting, or NULL and *e if it is unknown. */
static const struct target_kind *find_kind(const char *setting, struct str *ret_spec, struct err *e)
{
    const char *colon = strchr(setting, ':');
    struct str name = str_of(setting, colon ? (size_t)(colon - setting) : strlen(setting));

    *ret_spec = colon ? str_cstr(colon + 1) : (struct str){0};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (str_eq_c(name, kinds[i]->name))
            return kinds[i];
    }
    (void)err_field(e, "sink", "--sink \"%s\": it must be file:DIR or redis:URL", setting);
    return NULL;
}

int target_check(const char *setting, struct err *e)
{
    struct str spec;
    const struct target_kind *kind = find_kind(setting, &spec, e);

    return kind ? kind->check(spec, e) : -1;
}

int target_reach(const char *setting, struct err *e)
{
    struct str spec;
    const struct target_kind *kind = find_kind(setting, &spec, e);

    if (!kind || kind->check(spec, e))
        return -1;
    return kind->reach ? kind->reach(spec, e) : 0;
}

/* Derives the folder's name from the setting, so that the target finds its files again after a
 * restart. */
int target_new(const struct target_env *env, const char *setting, struct target **ret,
               struct err *e)
{
    struct buf folder = {0};
    struct str spec;
    const struct target_kind *kind = find_kind(setting, &spec, e);
    struct target *t;

    if (!kind)
        return -1;
    t = mem_zalloc(sizeof(*t));
    t->kind = kind;
    t->env = env;
    t->end = &t->first;
    t->open = mem_zalloc(sizeof(*t->open));
    t->delay_ms = DELAY_MIN_MS;
    buf_printf(&folder, "%s-%08x", t->kind->name, (unsigned)str_hash(str_cstr(setting), 0));
    t->name = buf_take(&folder);
    if (kind->open(t, spec, e)) {
        free(t->name);
        free(t->open);
        free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

void target_free(struct target *t)
{
    loop_timer_stop(t->env->loop, &t->retry);
    t->kind->close(t);
    spooled_close(t->open);
    free(t->open);
    for (struct parcel *p = t->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    map_done(&t->queued);
    vec_done(&t->places);
    free(t->name);
    free(t);
}

void target_folder(const struct target *t, uint32_t place, struct buf *ret)
{
    buf_clear(ret);
    buf_printf(ret, "%s/worker-%u/spool/%s", t->env->state_dir, place, t->name);
}

/* --- the queue --- */

static void file_path(const struct target *t, uint32_t place, struct str name, struct buf *ret)
{
    target_folder(t, place, ret);
    buf_printf(ret, "/%.*s%s", (int)name.len, name.p, SUFFIX);
}

static void parcel_path(const struct target *t, const struct parcel *p, struct buf *ret)
{
    file_path(t, p->place, str_cstr(p->session_id), ret);
}

static void send_first(struct target *t);

static void on_retry(struct loop_timer *timer)
{
    send_first(CONTAINER_OF(timer, struct target, retry));
}

/* Schedules send_first for the next loop iteration, unless a file is being sent or a retry is
 * pending. */
static void send_soon(struct target *t)
{
    if (t->first && !t->sending && (!t->down || !loop_timer_active(&t->retry)))
        loop_timer_set(t->env->loop, &t->retry, 1, on_retry);
}

/* Unlinks the first parcel of a non-empty queue, and returns it. */
static struct parcel *pop_parcel(struct target *t)
{
    struct parcel *p = t->first;

    t->first = p->next;
    if (!t->first)
        t->end = &t->first;
    p->next = NULL;
    return p;
}

static void append_parcel(struct target *t, struct parcel *p)
{
    *t->end = p;
    t->end = &p->next;
}

/* Removes and frees the first parcel, which was sent or renamed. */
static void drop_first(struct target *t)
{
    struct parcel *p = pop_parcel(t);

    (void)map_take(&t->queued, str_cstr(p->session_id));
    t->n--;
    t->bytes -= p->bytes;
    free(p);
}

/* Renames a file that cannot be sent, so that the next files follow, and logs it. */
static void put_aside(struct target *t, const char *path, const struct err *why)
{
    struct log_scope scope = {.session = str_cstr(t->first->session_id)};
    struct buf aside = {0};

    buf_printf(&aside, "%s.damaged", path);
    if (rename(path, aside.p) == 0)
        log_error(&scope, "a spooled export is damaged, put aside", LOG_T("sink", t->name),
                  LOG_T("file", aside.p), LOG_T("reason", why->text));
    else
        log_error(&scope, "a spooled export is gone", LOG_T("sink", t->name));
    buf_done(&aside);
    metrics_count(t->env->page, METRIC_sink_errors, 1);
    drop_first(t);
    send_soon(t);
}

/* Plans the next attempt for the first parcel, after growing pauses. Logs each reason once. */
static void retry_first(struct target *t, const struct err *why)
{
    uint64_t reason = str_hash(str_cstr(why->text), 0);

    metrics_count(t->env->page, METRIC_sink_errors, 1);
    if (!t->down || t->reason != reason)
        log_warn(&(struct log_scope){.session = str_cstr(t->first->session_id)},
                 "a sink takes nothing: trajectories wait", LOG_T("sink", t->name),
                 LOG_T("reason", why->text));
    t->down = true;
    t->reason = reason;
    loop_timer_set(t->env->loop, &t->retry, t->delay_ms, on_retry);
    t->delay_ms = MIN_OF(t->delay_ms * 2, DELAY_MAX_MS);
}

/* Opens the first file and sends it. Does nothing while a file is being sent. */
static void send_first(struct target *t)
{
    struct buf path = {0};
    struct err e = {0};

    if (!t->first || t->sending)
        return;
    parcel_path(t, t->first, &path);
    if ((t->first->group ? spooled_open_group : spooled_open)(path.p, t->open, &e) == 0) {
        t->sending = true;
        t->kind->send(t, path.p);
    } else if (e.kind == ERR_IO) { /* descriptors or memory ran out: other files first */
        retry_first(t, &e);
        append_parcel(t, pop_parcel(t));
    } else {
        put_aside(t, path.p, &e);
    }
    buf_done(&path);
}

/* Removes the first file from the spool. ENOENT is fine: the file target renames the file away. */
static void remove_first(const struct target *t)
{
    struct buf path = {0};

    parcel_path(t, t->first, &path);
    if (unlink(path.p) && errno != ENOENT)
        log_warn(&(struct log_scope){.session = str_cstr(t->first->session_id)},
                 "what was delivered stays in the spool: behind a restart it comes twice",
                 LOG_T("file", path.p), LOG_T("reason", strerror(errno)));
    buf_done(&path);
}

void target_done(struct target *t, const struct err *why)
{
    size_t trajectories = t->open->pieces.n;
    bool group = t->first->group;
    char *id;

    t->sending = false;
    spooled_close(t->open);
    if (why) {
        retry_first(t, why);
        return;
    }
    if (t->down)
        log_info(NULL, "a sink takes trajectories again", LOG_T("sink", t->name));
    t->down = false;
    t->delay_ms = DELAY_MIN_MS;
    metrics_count(t->env->page, METRIC_sink_delivered, trajectories);
    remove_first(t);
    id = mem_strdup(t->first->session_id);
    drop_first(t);
    if (!group && t->env->delivered)
        t->env->delivered(t->env->ctx, str_cstr(id));
    free(id);
    send_soon(t);
}

void target_postpone(struct target *t, const struct err *why)
{
    t->sending = false;
    spooled_close(t->open);
    if (!t->first->postponed) {
        metrics_count(t->env->page, METRIC_sink_errors, 1);
        log_warn(&(struct log_scope){.session = str_cstr(t->first->session_id)},
                 "a sink does not take this session: it waits, others do not",
                 LOG_T("sink", t->name), LOG_T("reason", why->text));
    }
    t->first->postponed = true;
    for (size_t i = 0; i < t->n && t->first->postponed; i++)
        append_parcel(t, pop_parcel(t));
    if (!t->first->postponed) {
        send_soon(t);
        return;
    }
    append_parcel(t, pop_parcel(t)); /* all files are postponed: try the next one */
    loop_timer_set(t->env->loop, &t->retry, t->delay_ms, on_retry);
    t->delay_ms = MIN_OF(t->delay_ms * 2, DELAY_MAX_MS);
}

void target_add(struct target *t, uint32_t place, struct str session_id)
{
    struct parcel *p;
    struct buf path = {0};
    struct stat st;

    if (map_get(&t->queued, session_id)) /* an export made again after a crash has the same bytes */
        return;
    p = mem_zalloc(sizeof(*p) + session_id.len + 1);
    memcpy(p->session_id, session_id.p, session_id.len);
    p->group = str_starts(session_id, STR(PARCEL_GROUP));
    p->place = place;
    parcel_path(t, p, &path);
    p->bytes = stat(path.p, &st) ? 0 : (uint64_t)st.st_blocks * 512;
    buf_done(&path);
    append_parcel(t, p);
    (void)map_set(&t->queued, str_cstr(p->session_id), p);
    t->n++;
    t->bytes += p->bytes;
    send_soon(t);
}

/* --- groups --- */

/* Includes a hash of the entry in the name. The group's id may be reused while an entry of the
 * earlier group still waits. */
int target_group_name(struct str group, struct str entry, struct buf *ret, struct err *e)
{
    uint64_t sum[2];

    if (!session_rules_is_group_id(group))
        return err_field(e, "group", "group must be a group's id");
    str_hash128(entry, sum);
    buf_printf(ret, PARCEL_GROUP "%.*s@%016llx%016llx", (int)group.len, group.p,
               (unsigned long long)sum[0], (unsigned long long)sum[1]);
    return 0;
}

bool target_is_part(struct str name)
{
    return str_starts(name, STR("." PARCEL_GROUP)) && str_ends(name, STR(PART_SUFFIX));
}

/* Writes synchronously on this thread, since entries are small and rare. */
int target_write_group(const struct target *t, uint32_t place, struct str name, struct str entry,
                       struct err *e)
{
    struct buf folder = {0}, part = {0}, whole = {0};
    int rc = 0;

    if (map_get(&t->queued, name))
        return 0;
    target_folder(t, place, &folder);
    buf_printf(&part, "%s/.%.*s" PART_SUFFIX, folder.p, (int)name.len, name.p);
    file_path(t, place, name, &whole);
    if (file_write(whole.p, part.p, entry, t->env->durable) ||
        (t->env->durable && file_sync_folder(folder.p))) {
        rc = err_sys(e, errno == ENOSPC || errno == EDQUOT ? ERR_STORAGE_FULL : ERR_IO,
                     "cannot put a group's entry into the spool");
        target_unwrite_group(t, place, name);
    }
    buf_done(&folder);
    buf_done(&part);
    buf_done(&whole);
    return rc;
}

void target_unwrite_group(const struct target *t, uint32_t place, struct str name)
{
    struct buf whole = {0};

    if (map_get(&t->queued, name))
        return;
    file_path(t, place, name, &whole);
    (void)unlink(whole.p);
    buf_done(&whole);
}

/* --- folders --- */

struct found {
    struct timespec at;
    char *session_id;
};

/* Compares two files by age; the oldest comes first. */
static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->at, *y = &((const struct found *)b)->at;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Reports whether the name is that of a file to send, and sets *ret_id to its name in the queue. */
static bool parcel_name(struct str name, struct str *ret_id)
{
    uint32_t index;

    if (!str_ends(name, STR(".msgpack")))
        return false;
    *ret_id = str_sub(name, 0, name.len - strlen(SUFFIX));
    if (str_starts(*ret_id, STR(PARCEL_GROUP)))
        return true;
    return ids_parse(*ret_id, &index) == 0;
}

int target_scan(struct target *t, uint32_t place, struct err *e)
{
    VEC(struct found) all = {0};
    struct buf path = {0};
    struct dirent *entry;
    struct stat st;
    DIR *dir;
    int rc = 0;

    *vec_push(&t->places) = place;
    target_folder(t, place, &path);
    dir = mkdir(path.p, 0700) && errno != EEXIST ? NULL : opendir(path.p);
    if (!dir)
        rc = err_sys(e, ERR_IO, "cannot open %s", path.p);
    while (dir && (entry = file_next_entry(dir))) {
        struct str id;

        if (parcel_name(str_cstr(entry->d_name), &id) &&
            fstatat(dirfd(dir), entry->d_name, &st, 0) == 0)
            *vec_push(&all) = (struct found){st.st_mtim, mem_strndup(id.p, id.len)};
    }
    if (dir && errno)
        rc = err_sys(e, ERR_IO, "cannot read %s", path.p);
    if (all.n > 1)
        qsort(all.at, all.n, sizeof(*all.at), by_age);
    for (size_t i = 0; i < all.n; i++) {
        target_add(t, place, str_cstr(all.at[i].session_id));
        free(all.at[i].session_id);
    }
    vec_done(&all);
    if (dir)
        (void)closedir(dir);
    buf_done(&path);
    return rc;
}

/* Removes pointed files whose retention has ended. Returns the bytes of the others. */
static uint64_t sweep_pointed(const struct target *t, uint32_t place)
{
    int64_t now_s = time(NULL);
    struct buf path = {0};
    struct dirent *entry;
    uint64_t bytes = 0;
    struct stat st;
    DIR *dir;

    target_folder(t, place, &path);
    buf_printf(&path, "/pointed");
    dir = opendir(path.p);
    while (dir && (entry = file_next_entry(dir))) {
        if (fstatat(dirfd(dir), entry->d_name, &st, 0) || !S_ISREG(st.st_mode))
            continue;
        if (st.st_ctim.tv_sec + (int64_t)(t->env->retention_ms / 1000) < now_s)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        else
            bytes += (uint64_t)st.st_blocks * 512;
    }
    (void)file_end_entries(dir, path.p);
    buf_done(&path);
    return bytes;
}

void target_sweep(struct target *t)
{
    t->pointed_bytes = 0;
    for (size_t i = 0; i < t->places.n; i++)
        t->pointed_bytes += sweep_pointed(t, t->places.at[i]);
}
