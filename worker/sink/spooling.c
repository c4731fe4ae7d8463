/*
 * Spools one session's export. spooling_run calls, in this order:
 *
 *   await_session  reads the session back if it is not in memory
 *   write_export   writes ID.part, with pauses for other tasks
 *   disk_wait_for  with --durability power: waits until the bytes are on disk
 *   link_all       links the file into each target's folder, without a copy
 *   sync_folders   with --durability power: waits until the links are on disk
 *   unlink         removes the name ID.part
 */

#include "worker/sink/spooling.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "worker/export/build/export.h"
#include "worker/plane/call/call_env.h"
#include "worker/residency/await_session.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/sink/disk_wait.h"
#include "worker/sink/sink_target.h"

enum { FLUSH_BYTES = 64 << 10 };

/* The .part file to which an export is written. */
struct part_file {
    struct export_out out;
    struct buf bytes, path;
    int fd;
    bool failed;   /* the last error is the disk's, not the export's */
    struct str id; /* id of the session */
    struct spooling *spooling;
};

static int flush_export_bytes(struct part_file *f, struct err *e)
{
    if (file_write_all(f->fd, buf_str(&f->bytes))) {
        f->failed = true;
        return err_sys(e, disk_error_kind(), "cannot write to the spool");
    }
    buf_clear(&f->bytes);
    return 0;
}

MAY_PAUSE static int flow_export_bytes(struct export_out *o, struct err *e)
{
    struct part_file *f = CONTAINER_OF(o, struct part_file, out);

    if (f->bytes.len >= FLUSH_BYTES && flush_export_bytes(f, e))
        return -1;
    return task_pause(e);
}

static int read_options(const struct spooling *g, struct session *s, struct arena *a,
                        struct export_options *ret, struct err *e)
{
    const struct json *given = NULL;
    struct str text = {0};

    export_options_init(ret);
    (void)session_sink(s, &text);
    if (text.len > 0 &&
        (json_parse(a, arena_str(a, text), &given, e) || export_options_json(ret, given, e)))
        return -1;
    ret->format = EXPORT_MSGPACK;
    ret->store = g->media;
    ret->held_bytes = &g->calls->export_bytes;
    return 0;
}

MAY_PAUSE static int write_export(struct part_file *f, struct session *s, struct err *e)
{
    const struct call_env *env = f->spooling->calls;
    struct export_options options;
    struct export *x = NULL;
    struct arena a = {0};
    int rc = -1;

    if (read_options(f->spooling, s, &a, &options, e) == 0)
        rc = export_new(s, env->model, env->scratch, &options, &x, e);
    if (rc == 0)
        rc = export_write(x, &f->out, e);
    if (rc == 0)
        rc = flush_export_bytes(f, e);
    if (rc == 0) {
        struct export_figures figures = export_figures(x);

        run_count_export(env, s, figures.trained, figures.trajectories, figures.drifted);
    }
    export_free(x);
    arena_done(&a);
    return rc;
}

static int open_export_file(struct part_file *f, struct err *e)
{
    buf_printf(&f->path, "%s/worker-%u/spool/%.*s.part", f->spooling->state_dir, f->spooling->place,
               (int)f->id.len, f->id.p);
    f->fd = open(f->path.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    f->failed = f->fd < 0;
    return f->failed ? err_sys(e, disk_error_kind(), "cannot write to the spool") : 0;
}

/* Links the .part file into every target's folder. */
static int link_all(const struct part_file *f, struct err *e)
{
    const struct spooling *g = f->spooling;
    struct buf to = {0};
    int rc = 0;

    for (size_t i = 0; i < g->n_targets && rc == 0; i++) {
        target_folder(g->targets[i], g->place, &to);
        buf_printf(&to, "/%.*s.msgpack", (int)f->id.len, f->id.p);
        rc = link(f->path.p, to.p);
        if (rc && errno == EEXIST) /* an earlier copy from before a crash */
            rc = unlink(to.p) || link(f->path.p, to.p) ? -1 : 0;
    }
    if (rc)
        (void)err_sys(e, disk_error_kind(), "cannot put an export into the spool");
    buf_done(&to);
    return rc;
}

MAY_PAUSE static int sync_folders(const struct part_file *f, struct err *e)
{
    struct spooling *g = f->spooling;
    struct buf path = {0};
    int rc = 0;

    for (size_t i = 0; i < g->n_targets && rc == 0; i++) {
        target_folder(g->targets[i], g->place, &path);
        rc = disk_wait_folder(g->disk, path.p, e);
    }
    buf_done(&path);
    return rc;
}

/* Publishes the written file to the targets. Every error from here on is the disk's. */
MAY_PAUSE static int publish_export(struct part_file *f, struct err *e)
{
    f->failed = true;
    if (disk_wait_for(f->spooling->disk, f->fd, "the spool", e) || link_all(f, e) ||
        sync_folders(f, e))
        return -1;
    return 0;
}

void spooling_close_file(struct spooling *g)
{
    struct part_file *f = g->file;

    if (f->fd >= 0)
        (void)close(f->fd);
    (void)unlink(f->path.p);
    buf_done(&f->path);
    buf_done(&f->bytes);
}

MAY_PAUSE static enum spooling_end spool_session(struct spooling *g, struct session *s,
                                                 struct err *e)
{
    struct part_file f = {.out = {.bytes = &f.bytes, .flow = flow_export_bytes},
                          .fd = -1,
                          .id = session_id(s),
                          .spooling = g};
    int rc;

    g->file = &f;
    g->place = places_find(g->residency->places, f.id)->index;
    rc = open_export_file(&f, e) || write_export(&f, s, e) || publish_export(&f, e) ? -1 : 0;
    spooling_close_file(g);
    if (rc == 0)
        return SPOOLING_WHOLE;
    if (e->kind == ERR_CANCELLED)
        return SPOOLING_CANCELLED;
    return f.failed ? SPOOLING_NO_ROOM : SPOOLING_FAILED;
}

enum spooling_end spooling_run(struct spooling *g, struct str session_id, struct err *e)
{
    enum spooling_end end;
    struct session *s;

    if (await_session(g->residency, session_id, true, &s, e))
        return e->kind == ERR_CANCELLED ? SPOOLING_CANCELLED : SPOOLING_UNREADABLE;
    if (!s)
        return SPOOLING_DELETED;
    end = spool_session(g, s, e);
    session_unpin(g->residency->store, s);
    return end;
}

int spooling_open(struct spooling *g, bool durable, struct err *e)
{
    g->disk = mem_zalloc(sizeof(*g->disk));
    return durable ? disk_wait_init(g->disk, g->residency->loop, e) : 0;
}

void spooling_done(struct spooling *g)
{
    if (g->disk)
        disk_wait_done(g->disk);
    free(g->disk);
}
