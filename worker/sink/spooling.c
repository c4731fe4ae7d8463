/* One session's export into the spool (spooling.h):
 *
 *   begin_...    the promised options, an export, a file ID.part
 *   on_slice     a slice of the export a turn, written on the spot
 *   (helper)     what is long of it, and needs nothing of the session
 *   (syncer)     with durability power: the part's bytes
 *   publish      one name in each target's folder, no copy
 *   (syncer)     and each of those folders
 *   finish       the part's own name goes */

#include "worker/sink/spooling.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/journal/syncer.h"
#include "common/os/loop.h"
#include "worker/call/call_env.h"
#include "worker/export/export.h"
#include "worker/export/slice.h"
#include "worker/session/session.h"
#include "worker/sink/export_help.h"
#include "worker/sink/sink_target.h"

struct spooling {
    struct spooling_options o;
    struct session *session;
    struct export *export;
    struct arena arena; /* what the options borrow */
    struct buf out, part;
    int fd;          /* of the part, then of a folder that is being synced */
    size_t synced;   /* folders */
    uint64_t ticket; /* waited for; 0: none */
    bool linked;
    struct loop_task later;
    struct export_help *help; /* NULL: no helper has the export */
    bool stuck;               /* one has it for ever */
};

/* What a helper may still read, unless one is stuck in it. */
static void free_export(struct spooling *g)
{
    if (g->stuck)
        return;
    export_free(g->export);
    free(g);
}

static void on_help_left(void *ctx)
{
    free_export(ctx);
}

/* What was not published is gone. */
static void spooling_free(struct spooling *g)
{
    loop_task_cancel(g->o.calls->loop, &g->later);
    if (g->fd >= 0)
        (void)close(g->fd);
    if (g->part.len > 0)
        (void)unlink(g->part.p);
    buf_done(&g->part);
    buf_done(&g->out);
    arena_done(&g->arena);
    if (g->help)
        export_help_leave(g->help);
    else
        free_export(g);
}

void spooling_stop(struct spooling *g)
{
    if (g)
        spooling_free(g);
}

/* why NULL: every target's folder has it. */
static void finish(struct spooling *g, enum spooling_end end, const struct err *why)
{
    void (*done)(void *, enum spooling_end, const struct err *) = g->o.done;
    void *ctx = g->o.ctx;

    spooling_free(g);
    done(ctx, end, why);
}

/* The export is not made. */
static void fail(struct spooling *g, const struct err *why)
{
    finish(g, g->stuck ? SPOOLING_STUCK : SPOOLING_FAILED, why);
}

static void finish_sys(struct spooling *g, const char *what)
{
    struct err e = {0};

    (void)err_sys(&e, errno == ENOSPC || errno == EDQUOT ? ERR_STORAGE_FULL : ERR_IO, "%s", what);
    finish(g, SPOOLING_NO_ROOM, &e);
}

/* The same bytes under every target's folder: a name each, no copy. 0 or -1 with errno. */
static int link_all(struct spooling *g)
{
    struct buf to = {0};
    struct str id = session_id(g->session);
    int rc = 0;

    for (size_t i = 0; i < g->o.n_targets && rc == 0; i++) {
        target_folder(g->o.targets[i], g->o.place, &to);
        buf_printf(&to, "/%.*s.msgpack", (int)id.len, id.p);
        rc = link(g->part.p, to.p);
        if (rc && errno == EEXIST) /* from before a crash: replaced by the same */
            rc = unlink(to.p) || link(g->part.p, to.p) ? -1 : 0;
    }
    buf_done(&to);
    return rc;
}

/* Has the next folder synced; done behind the last. */
static void sync_folders(struct spooling *g)
{
    struct buf path = {0};

    (void)close(g->fd);
    g->fd = -1;
    if (!g->o.syncer || g->synced == g->o.n_targets) {
        finish(g, SPOOLING_WHOLE, NULL);
        return;
    }
    target_folder(g->o.targets[g->synced++], g->o.place, &path);
    g->fd = open(path.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    buf_done(&path);
    if (g->fd < 0)
        finish_sys(g, "cannot sync the spool");
    else
        g->ticket = syncer_ask(g->o.syncer, g->fd);
}

/* The bytes are as durable as they are to be. */
static void publish(struct spooling *g)
{
    g->linked = true;
    if (link_all(g))
        finish_sys(g, "cannot put an export into the spool");
    else
        sync_folders(g);
}

/* An answer of the syncer that all spooling of a worker shares; later tickets answer for earlier
 * ones. */
void spooling_synced(struct spooling *g, uint64_t ticket, int failed)
{
    if (!g || g->ticket == 0 || ticket < g->ticket)
        return;
    g->ticket = 0;
    if (failed) {
        errno = failed;
        finish_sys(g, "cannot sync the spool");
    } else if (g->linked) {
        sync_folders(g);
    } else {
        publish(g);
    }
}

/* 0, or -1 with errno. */
static int write_out(struct spooling *g)
{
    size_t at = 0;

    while (at < g->out.len) {
        ssize_t n = write(g->fd, g->out.p + at, g->out.len - at);

        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    buf_clear(&g->out);
    return 0;
}

static void on_slice(struct loop_task *t);

static void on_helped(void *ctx, const struct err *e, bool stuck)
{
    struct spooling *g = ctx;

    g->help = NULL;
    g->stuck = stuck;
    if (e)
        fail(g, e);
    else
        loop_task_post(g->o.calls->loop, &g->later, on_slice);
}

static void go_on(struct spooling *g)
{
    static const struct export_help_events events = {on_helped, on_help_left};

    g->help = export_has_work(g->export)
                  ? export_help_begin(g->o.calls, g->export, session_id(g->session), &events, g)
                  : NULL;
    if (!g->help)
        loop_task_post(g->o.calls->loop, &g->later, on_slice);
}

/* Others get their turn between two. */
static void on_slice(struct loop_task *t)
{
    struct spooling *g = CONTAINER_OF(t, struct spooling, later);
    struct err e = {0};
    int rc = export_slice(g->export, &g->out, &e);

    if (rc < 0)
        fail(g, &e);
    else if (write_out(g))
        finish_sys(g, "cannot write to the spool");
    else if (rc == 0)
        go_on(g);
    else if (g->o.syncer)
        g->ticket = syncer_ask(g->o.syncer, g->fd);
    else
        publish(g);
}

/* -1 and e. */
static int begin_export(struct spooling *g, struct str options, struct err *e)
{
    const struct json *given = NULL;
    struct export_options o;

    export_options_init(&o);
    if (options.len > 0 && (json_parse(&g->arena, arena_str(&g->arena, options), &given, e) ||
                            export_options_json(&o, given, e)))
        return -1;
    o.format = EXPORT_MSGPACK;
    o.store = g->o.media;
    o.held_bytes = &g->o.calls->export_bytes;
    o.helped = g->o.calls->helpers != NULL;
    return export_new(g->session, g->o.calls->model, g->o.calls->scratch, &o, &g->export, e);
}

/* -1 with errno. */
static int begin_part(struct spooling *g)
{
    struct str id = session_id(g->session);

    buf_printf(&g->part, "%s/worker-%u/spool/%.*s.part", g->o.state_dir, g->o.place, (int)id.len,
               id.p);
    g->fd = open(g->part.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return g->fd < 0 ? -1 : 0;
}

/* NULL: it has failed already, and done was called. */
struct spooling *spooling_start(const struct spooling_options *o, struct session *s)
{
    struct spooling *g = mem_zalloc(sizeof(*g));
    struct str options;
    struct err e = {0};

    g->o = *o;
    g->session = s;
    g->fd = -1;
    (void)session_sink(s, &options);
    if (begin_export(g, options, &e)) {
        fail(g, &e);
        return NULL;
    }
    if (begin_part(g)) {
        finish_sys(g, "cannot write to the spool");
        return NULL;
    }
    loop_task_post(o->calls->loop, &g->later, on_slice);
    return g;
}
