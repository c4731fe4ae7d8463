/* Images of a worker's sessions in the store of its fleet (common/fleet/file_copy.h): what the
 * media store gets goes there, and what only the fleet's store has comes back. */
#include <pthread.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/fleet/file_copy.h"
#include "common/os/task.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/plane/control/handlers.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/worker_state.h"

struct worker_files {
    struct worker_state *w;
    struct file_copy *copy; /* NULL: not open */
    pthread_mutex_t lock;   /* of `stored` */
    _Atomic bool has_stored;
    VEC(char *) stored;  /* "SESSION/NAME": files that threads have stored, not collected yet */
    struct map arrivals; /* struct arriving_file by "SESSION/NAME": files that are being read */
    uint32_t index;      /* place whose files are being added */
};

struct arriving_file {
    struct worker_files *files;
    struct media_arrival *arrival;
    struct file_call *call; /* waits until the file has its name; NULL: pieces are missing */
};

static void write_path(struct buf *out, struct str session, struct str name)
{
    buf_printf(out, "%.*s/%.*s", (int)session.len, session.p, (int)name.len, name.p);
}

/* Called by any thread. */
static void on_stored(void *ctx, struct str session, struct str name)
{
    struct worker_files *f = ctx;
    struct buf path = {0};

    write_path(&path, session, name);
    CHECK(pthread_mutex_lock(&f->lock) == 0);
    *vec_push(&f->stored) = mem_strndup(path.p, path.len);
    atomic_store(&f->has_stored, true);
    CHECK(pthread_mutex_unlock(&f->lock) == 0);
    buf_done(&path);
}

static void add_file(struct worker_files *f, struct str session, struct str name)
{
    uint32_t index;

    if (ids_parse(session, &index) == 0 &&
        places_serve(f->w->service.calls.residency->places, index))
        file_copy_add(f->copy, index, session, name);
}

static void collect_stored(void *ctx)
{
    struct worker_files *f = ctx;
    VEC(char *) stored = {0};

    if (!atomic_load_explicit(&f->has_stored, memory_order_acquire))
        return;
    CHECK(pthread_mutex_lock(&f->lock) == 0);
    for (size_t i = 0; i < f->stored.n; i++)
        *vec_push(&stored) = f->stored.at[i];
    vec_clear(&f->stored);
    atomic_store(&f->has_stored, false);
    CHECK(pthread_mutex_unlock(&f->lock) == 0);
    for (size_t i = 0; i < stored.n; i++) {
        struct str path = str_cstr(stored.at[i]);
        size_t slash = str_find(path, STR("/"), 0);

        add_file(f, str_sub(path, 0, slash), str_sub(path, slash + 1, SIZE_MAX));
        free(stored.at[i]);
    }
    vec_done(&stored);
}

static int64_t read_file(void *ctx, struct str session, struct str name, uint64_t at, size_t n,
                         struct buf *out)
{
    const struct worker_files *f = ctx;
    struct err e = {0};
    int64_t size = media_store_read(f->w->media, session, name, at, n, out, &e);

    return size < 0 && e.kind != ERR_NOT_FOUND ? FILE_COPY_UNREADABLE : size;
}

static bool has_file(void *ctx, struct str session, struct str name)
{
    const struct worker_files *f = ctx;

    return media_store_has(f->w->media, session, name);
}

/* Frees a file that was read in part, or has its name. */
static void end_arrival(struct worker_files *f, struct str path)
{
    struct arriving_file *x = map_take(&f->arrivals, path);

    if (x)
        media_arrival_free(x->arrival);
    free(x);
}

/* Begins a file. Returns NULL with e. */
static struct arriving_file *begin_arrival(struct worker_files *f, struct str session,
                                           struct str name, struct err *e)
{
    struct media_arrival *arrival = media_arrival_new(f->w->media, session, name, e);
    struct arriving_file *x;

    if (!arrival)
        return NULL;
    x = mem_zalloc(sizeof(*x));
    x->files = f;
    x->arrival = arrival;
    (void)map_set(&f->arrivals, media_arrival_path(arrival), x);
    return x;
}

/* A piece has all these parameters. NOLINTNEXTLINE(readability-function-size) */
static int add_piece(void *ctx, struct str session, struct str name, uint64_t n, struct str bytes,
                     struct err *e)
{
    struct worker_files *f = ctx;
    struct arriving_file *x;
    struct buf path = {0};
    int rc = -1;

    write_path(&path, session, name);
    x = map_get(&f->arrivals, buf_str(&path));
    if (x && x->call) { /* the place was compared again meanwhile */
        buf_done(&path);
        return err_set(e, ERR_STORAGE_FAILED, "an image is being stored");
    }
    if (n == 0) {
        end_arrival(f, buf_str(&path));
        x = begin_arrival(f, session, name, e);
    } else if (!x) {
        (void)err_set(e, ERR_STORAGE_FAILED, "an image must be read from its start");
    }
    if (x)
        rc = media_arrival_add(x->arrival, bytes, e);
    if (rc != 0)
        end_arrival(f, buf_str(&path));
    buf_done(&path);
    return rc;
}

static int finish_arrival(void *ctx, void *tool, struct err *e)
{
    const struct arriving_file *x = ctx;

    (void)tool;
    return media_arrival_finish(x->arrival, e);
}

/* The task of a complete file. The disk may be slow, so that a helper thread waits for it. */
static void finish_reading(void *ctx)
{
    struct arriving_file *x = ctx;
    struct file_call *call = x->call;
    struct err e = {0};
    struct task_work work = {
        .fn = finish_arrival, .ctx = x, .lane = media_arrival_path(x->arrival)};
    int rc = task_offload(&work, &e);

    end_arrival(x->files, media_arrival_path(x->arrival));
    file_copy_end_read(call, rc == 0 ? NULL : &e);
}

static void finish_file(void *ctx, struct str session, struct str name, struct file_call *call)
{
    struct worker_files *f = ctx;
    struct arriving_file *x;
    struct buf path = {0};

    write_path(&path, session, name);
    x = map_get(&f->arrivals, buf_str(&path));
    CHECK(x); /* its last piece was added */
    x->call = call;
    (void)task_start(f->w->service.calls.tasks, session, finish_reading, x);
    buf_done(&path);
}

/* A finalized session is exported as long as its export is kept. A deleted one is never read. */
static bool is_needed(void *ctx, struct str session)
{
    const struct worker_files *f = ctx;
    const struct service *a = &f->w->service;

    return session_is_kept(a->calls.store, session) || control_copies(a, session) ||
           ledger_is_unread(a->calls.ledger, session);
}

struct worker_files *worker_files_new(struct worker_state *w, struct media_options *o)
{
    struct worker_files *f;

    if (!w->h->fleet)
        return NULL;
    f = mem_zalloc(sizeof(*f));
    f->w = w;
    CHECK(pthread_mutex_init(&f->lock, NULL) == 0);
    o->on_stored = on_stored;
    o->ctx = f;
    return f;
}

void worker_files_open(struct worker_files *f)
{
    const struct file_copy_options o = {.loop = f->w->loop,
                                        .store = f->w->store,
                                        .copy = f->w->service.calls.ledger->copy,
                                        .read = read_file,
                                        .has = has_file,
                                        .collect = collect_stored,
                                        .add = add_piece,
                                        .finish = finish_file,
                                        .is_needed = is_needed,
                                        .ctx = f};

    f->copy = file_copy_new(&o);
}

static bool is_of_place(void *ctx, struct str session)
{
    const struct worker_files *f = ctx;
    uint32_t index;

    return ids_parse(session, &index) == 0 && index == f->index;
}

static void on_file(void *ctx, struct str session, struct str name)
{
    struct worker_files *f = ctx;

    file_copy_add(f->copy, f->index, session, name);
}

void worker_files_add_place(struct worker_files *f, uint32_t index)
{
    f->index = index;
    media_store_each(f->w->media, is_of_place, on_file, f);
}

void worker_files_sweep(struct worker_files *f)
{
    if (f && f->copy)
        file_copy_sweep(f->copy);
}

void worker_files_close(struct worker_files *f)
{
    if (!f)
        return;
    file_copy_free(f->copy);
    f->copy = NULL;
}

void worker_files_free(struct worker_files *f)
{
    struct map_slot *slot;

    if (!f)
        return;
    for (size_t at = 0; (slot = map_next(&f->arrivals, &at));) {
        struct arriving_file *x = slot->value;

        media_arrival_free(x->arrival);
        free(x);
    }
    map_done(&f->arrivals);
    for (size_t i = 0; i < f->stored.n; i++)
        free(f->stored.at[i]);
    vec_done(&f->stored);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}
