/* Sends, reads and drops files (file_copy.h). Per place a few files are sent at a time, each piece
 * after the answer of the one before. A round ends with each comparison of lengths: answers of
 * older rounds are ignored. */
#include "common/fleet/file_copy.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/second_copy.h"
#include "common/os/loop.h"

enum { SENT_AT_A_TIME = 4, FILES_PER_STEP = 16, PAUSE_MS = 1000 };

#define SEPARATOR STR("~")

struct files_place {
    uint32_t index;
    uint64_t epoch; /* 0: nothing is sent */
    unsigned round, in_flight;
    bool pauses;              /* nothing is sent before the timer */
    struct list_head pending; /* files that the store may lack */
};

struct files_session {
    struct list_head files;
    struct files_place *place;
    unsigned n_pending; /* number of files that its records wait for */
    size_t id_len;
    char id[];
};

struct copied_file {
    struct list_item item;    /* in files_session.files */
    struct list_item pending; /* in files_place.pending; not while a piece is in flight */
    struct files_session *session;
    bool is_pending; /* the session's records wait for it */
    bool replaced;   /* the store had other bytes, and was asked to delete them */
    bool unreadable; /* it cannot be read here, which was logged */
    uint64_t next;   /* number of pieces that the store has */
    size_t name_at, key_len;
    char key[]; /* SESSION~NAME */
};

struct file_copy {
    struct file_copy_options o;
    struct map sessions;
    VEC(struct files_place *) places;
    size_t n_pending; /* files of all sessions */
    struct loop_timer again;
    struct loop_task work;
};

static struct str key_of(const struct copied_file *f)
{
    return str_of(f->key, f->key_len);
}

static struct str name_of_file(const struct copied_file *f)
{
    return str_sub(key_of(f), f->name_at, SIZE_MAX);
}

static struct str id_of(const struct files_session *s)
{
    return str_of(s->id, s->id_len);
}

static struct files_place *get_place(struct file_copy *c, uint32_t index)
{
    struct files_place *p;

    for (size_t i = 0; i < c->places.n; i++)
        if (c->places.at[i]->index == index)
            return c->places.at[i];
    p = mem_zalloc(sizeof(*p));
    p->index = index;
    *vec_push(&c->places) = p;
    return p;
}

static struct files_session *get_session(struct file_copy *c, uint32_t place, struct str id)
{
    struct files_session *s = map_get(&c->sessions, id);

    if (s)
        return s;
    s = mem_zalloc(sizeof(*s) + id.len);
    s->place = get_place(c, place);
    s->id_len = id.len;
    memcpy(s->id, id.p, id.len);
    (void)map_set(&c->sessions, id_of(s), s);
    return s;
}

static struct copied_file *get_file(struct files_session *s, struct str name)
{
    struct copied_file *f;

    LIST_EACH(&s->files, f, struct copied_file, item) {
        if (str_eq(name_of_file(f), name))
            return f;
    }
    f = mem_zalloc(sizeof(*f) + s->id_len + 1 + name.len);
    f->session = s;
    memcpy(f->key, s->id, s->id_len);
    f->key[s->id_len] = SEPARATOR.p[0];
    f->name_at = s->id_len + 1;
    memcpy(f->key + f->name_at, name.p, name.len);
    f->key_len = f->name_at + name.len;
    list_append(&s->files, &f->item);
    return f;
}

static void send_files(struct file_copy *c, struct files_place *p);

/* Ends the wait of the session's records for a file, which the store has or this node lacks. */
static void end_pending(struct file_copy *c, struct copied_file *f)
{
    struct files_session *s = f->session;

    list_remove(&f->pending);
    if (!f->is_pending)
        return;
    f->is_pending = false;
    c->n_pending--;
    if (--s->n_pending == 0)
        second_copy_resume(c->o.copy, id_of(s));
}

static void begin_pending(struct file_copy *c, struct copied_file *f)
{
    if (!f->is_pending) {
        c->n_pending++;
        f->session->n_pending++;
    }
    f->is_pending = true;
    if (!list_holds(&f->pending))
        list_append(&f->session->place->pending, &f->pending);
}

static void free_session(struct file_copy *c, struct files_session *s)
{
    struct copied_file *f;

    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a freed one left */
    while ((f = LIST_FIRST_OF(&s->files, struct copied_file, item))) {
        c->n_pending -= f->is_pending;
        list_remove(&f->pending);
        list_remove(&f->item);
        free(f);
    }
    free(s);
}

/* --- sending --- */

/* A piece, a deletion or a reading that has no answer yet. */
struct file_call {
    struct file_copy *files;
    struct files_place *place;
    unsigned round;
    uint64_t epoch, n;
    struct buf key;
    size_t id_len;
};

static struct file_call *call_new(struct file_copy *c, const struct copied_file *f, uint64_t n)
{
    struct file_call *k = mem_zalloc(sizeof(*k));

    k->files = c;
    k->place = f->session->place;
    k->round = k->place->round;
    k->epoch = k->place->epoch;
    k->n = n;
    k->id_len = f->session->id_len;
    buf_add_str(&k->key, key_of(f));
    return k;
}

static void call_free(struct file_call *k)
{
    buf_done(&k->key);
    free(k);
}

/* Finds the file of a call. NULL: the session was dropped meanwhile. */
static struct copied_file *file_of_call(const struct file_call *k)
{
    struct str key = buf_str(&k->key);
    struct files_session *s = map_get(&k->files->sessions, str_sub(key, 0, k->id_len));

    return s ? get_file(s, str_sub(key, k->id_len + 1, SIZE_MAX)) : NULL;
}

static void on_again(struct loop_timer *t)
{
    struct file_copy *c = CONTAINER_OF(t, struct file_copy, again);

    for (size_t i = 0; i < c->places.n; i++) {
        c->places.at[i]->pauses = false;
        send_files(c, c->places.at[i]);
    }
}

/* Sends nothing of the place for a while. */
static void pause_place(struct file_copy *c, struct files_place *p)
{
    p->pauses = true;
    if (!loop_timer_active(&c->again))
        loop_timer_set(c->o.loop, &c->again, PAUSE_MS, on_again);
}

/* Stops sending: the second copy compares the lengths again, or has lost the place. */
static void stop_place(struct file_copy *c, struct files_place *p, uint64_t epoch,
                       const struct store_answer *a)
{
    if (p->epoch != epoch)
        return;
    p->epoch = 0;
    if (a->verdict == STORE_FENCED)
        second_copy_fence(c->o.copy, p->index, epoch);
    else
        second_copy_lose(c->o.copy, p->index, a->why);
}

static void on_dropped(void *ctx, const struct store_answer *a)
{
    struct file_call *k = ctx;

    if (a->verdict != STORE_DONE && k->round == k->place->round)
        stop_place(k->files, k->place, k->epoch, a);
    call_free(k);
}

/* Deletes a file from the store. */
static void drop_file(struct file_copy *c, const struct copied_file *f)
{
    const struct files_place *p = f->session->place;

    store_drop(c->o.store, p->index, p->epoch, &(struct store_cut){.session = key_of(f)},
               (struct store_call){on_dropped, call_new(c, f, 0)});
}

/* The store has other bytes under this name: they are replaced once. */
static void replace_file_log(struct file_copy *c, struct copied_file *f)
{
    log_error(&(struct log_scope){.session = id_of(f->session)},
              "the fleet's store has other bytes of an image",
              LOG_T("result", f->replaced ? "left" : "replaced"));
    if (f->replaced) {
        end_pending(c, f);
        return;
    }
    f->replaced = true;
    f->next = 0;
    drop_file(c, f);
}

static void use_result(const struct file_call *k, struct copied_file *f,
                       const struct store_answer *a)
{
    if (a->verdict == STORE_DONE && a->n_refused == 0)
        f->next = k->n + 1;
    else if (a->n_refused > 0 && a->refused[0].verdict == STORE_SHORT)
        f->next = a->refused[0].next;
    else if (a->n_refused > 0)
        replace_file_log(k->files, f);
    list_remove(&f->pending); /* it is in the list if its session was dropped and made again */
    if (f->is_pending)
        list_prepend(&k->place->pending, &f->pending);
}

/* Handles a full store: answers that wait for files of the place fail, and a pause begins. */
static void wait_for_memory(struct file_copy *c, struct files_place *p)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&c->sessions, &at));) {
        const struct files_session *s = slot->value;

        if (s->place == p && s->n_pending > 0)
            second_copy_fail_full(c->o.copy, id_of(s));
    }
    pause_place(c, p);
}

static void use_piece(struct file_call *k, const struct store_answer *a)
{
    struct copied_file *f = file_of_call(k);

    if (a->verdict == STORE_FULL) {
        wait_for_memory(k->files, k->place);
    } else if (a->verdict != STORE_DONE) {
        stop_place(k->files, k->place, k->epoch, a);
        return;
    }
    if (f)
        use_result(k, f, a);
    if (a->verdict == STORE_DONE)
        send_files(k->files, k->place);
}

static void on_piece(void *ctx, const struct store_answer *a)
{
    struct file_call *k = ctx;

    if (k->round == k->place->round) {
        k->place->in_flight--;
        use_piece(k, a);
    }
    call_free(k);
}

/* Moves a file that cannot be read to the end of the list, and begins a pause. */
static void postpone_file(struct file_copy *c, struct files_place *p, struct copied_file *f)
{
    if (!f->unreadable)
        log_error(&(struct log_scope){.session = id_of(f->session)},
                  "an image for the fleet's store cannot be read, and its session's records wait");
    f->unreadable = true;
    list_remove(&f->pending);
    list_append(&p->pending, &f->pending);
    pause_place(c, p);
}

/* Sends the next piece of a file, or ends it. */
static void send_piece(struct file_copy *c, struct files_place *p, struct copied_file *f)
{
    struct buf bytes = {0};
    uint64_t at = f->next * FILE_COPY_PIECE;
    int64_t size =
        c->o.read(c->o.ctx, id_of(f->session), name_of_file(f), at, FILE_COPY_PIECE, &bytes);

    if (size == FILE_COPY_UNREADABLE) {
        postpone_file(c, p, f);
    } else if (size < 0 || (f->next > 0 && at >= (uint64_t)size)) {
        end_pending(c, f);
    } else {
        const struct store_record r = {
            .session = key_of(f), .n = f->next, .bytes = bytes.p ? buf_str(&bytes) : STR("")};

        f->unreadable = false;
        list_remove(&f->pending);
        p->in_flight++;
        store_append(c->o.store, p->index, p->epoch, &r, 1,
                     (struct store_call){on_piece, call_new(c, f, f->next)});
    }
    buf_done(&bytes);
}

static void on_work(struct loop_task *t)
{
    struct file_copy *c = CONTAINER_OF(t, struct file_copy, work);

    for (size_t i = 0; i < c->places.n; i++)
        send_files(c, c->places.at[i]);
}

/* Sends what may be in flight. Many files that the store has already take several steps. */
static void send_files(struct file_copy *c, struct files_place *p)
{
    struct copied_file *f;

    for (int n = 0; !p->pauses && p->epoch > 0 && p->in_flight < SENT_AT_A_TIME &&
                    (f = LIST_FIRST_OF(&p->pending, struct copied_file, pending));
         n++) {
        if (n == FILES_PER_STEP) {
            loop_task_post_behind(c->o.loop, &c->work, on_work);
            return;
        }
        send_piece(c, p, f);
    }
}

void file_copy_add(struct file_copy *c, uint32_t place, struct str session, struct str name)
{
    struct files_session *s = get_session(c, place, session);
    struct copied_file *f = get_file(s, name);

    if (f->is_pending)
        return;
    begin_pending(c, f);
    send_files(c, s->place);
}

/* --- reading --- */

static void read_next(struct file_copy *c, struct files_session *s);

static void on_file_read(void *ctx, const struct store_answer *a);

static void read_piece(struct file_copy *c, const struct copied_file *f, uint64_t n)
{
    store_read(c->o.store, f->session->place->index, key_of(f), n,
               (struct store_call){on_file_read, call_new(c, f, n)});
}

/* Adds the pieces of an answer. Returns 1 when the file is complete, 0 when there is more, -1. */
static int add_pieces(struct file_call *k, struct copied_file *f, const struct store_answer *a,
                      struct err *e)
{
    const struct file_copy_options *o = &k->files->o;

    if (a->n_texts == 0 || a->first != k->n)
        return err_set(e, ERR_IO, "the fleet's store has only a part of an image");
    for (size_t i = 0; i < a->n_texts; i++) {
        if (o->add(o->ctx, id_of(f->session), name_of_file(f), k->n + i, a->texts[i], e))
            return -1;
    }
    return a->first + a->n_texts == a->next;
}

/* Deletes a file that is incomplete or damaged from the store. Its session is read without it: the
 * store has records only after their files, so it has none that needs an incomplete one. */
static void drop_damaged(struct file_copy *c, struct copied_file *f, const struct err *e)
{
    log_warn(&(struct log_scope){.session = id_of(f->session)},
             "the fleet's store has an image that cannot be read, which is deleted there",
             LOG_T("error", e->text));
    f->next = 0;
    if (f->session->place->epoch > 0)
        drop_file(c, f);
}

/* Ends the reading of a file with an error. What this disk cannot take is read after a pause. */
static void fail_read(struct file_copy *c, struct copied_file *f, const struct err *e)
{
    if (e->kind == ERR_STORAGE_FULL || e->kind == ERR_STORAGE_FAILED || e->kind == ERR_CANCELLED) {
        second_copy_end_fetch(c->o.copy, id_of(f->session), e);
        return;
    }
    drop_damaged(c, f, e);
    read_next(c, f->session);
}

static void on_file_read(void *ctx, const struct store_answer *a)
{
    struct file_call *k = ctx;
    struct copied_file *f = k->round == k->place->round ? file_of_call(k) : NULL;
    struct file_copy *c = k->files;
    struct err e = {0};
    int rc;

    if (f && a->verdict != STORE_DONE) {
        stop_place(c, k->place, k->epoch, a);
    } else if (f) {
        rc = add_pieces(k, f, a, &e);
        if (rc > 0) {
            c->o.finish(c->o.ctx, id_of(f->session), name_of_file(f), k);
            return;
        }
        if (rc == 0)
            read_piece(c, f, k->n + a->n_texts);
        else
            fail_read(c, f, &e);
    }
    call_free(k);
}

void file_copy_end_read(struct file_call *k, const struct err *e)
{
    struct copied_file *f = k->round == k->place->round ? file_of_call(k) : NULL;

    if (f && e)
        fail_read(k->files, f, e);
    else if (f)
        read_next(k->files, f->session);
    call_free(k);
}

/* Reads the next file that is not here. After the last one the records follow. */
static void read_next(struct file_copy *c, struct files_session *s)
{
    struct copied_file *f;

    LIST_EACH(&s->files, f, struct copied_file, item) {
        if (f->next > 0 && !c->o.has(c->o.ctx, id_of(s), name_of_file(f))) {
            read_piece(c, f, 0);
            return;
        }
    }
    second_copy_end_fetch(c->o.copy, id_of(s), NULL);
}

/* --- the second copy's calls --- */

static void on_lengths_begin(void *ctx, uint32_t place)
{
    struct file_copy *c = ctx;
    struct files_place *p = get_place(c, place);
    struct map_slot *slot;
    struct copied_file *f;

    p->round++;
    p->in_flight = 0;
    p->epoch = 0;
    for (size_t at = 0; (slot = map_next(&c->sessions, &at));) {
        struct files_session *s = slot->value;

        LIST_EACH(&s->files, f, struct copied_file, item) {
            if (s->place == p)
                f->next = 0;
        }
    }
}

static bool take_log(void *ctx, uint32_t place, struct str id, uint64_t next)
{
    size_t at = str_find(id, SEPARATOR, 0);

    if (at == SIZE_MAX)
        return false;
    get_file(get_session(ctx, place, str_sub(id, 0, at)), str_sub(id, at + 1, SIZE_MAX))->next =
        next;
    return true;
}

/* All files that are here may be incomplete in the store. */
static void on_lengths_end(void *ctx, uint32_t place, uint64_t epoch)
{
    struct file_copy *c = ctx;
    struct files_place *p = get_place(c, place);
    struct map_slot *slot;
    struct copied_file *f;

    c->o.collect(c->o.ctx);
    p->epoch = epoch;
    for (size_t at = 0; (slot = map_next(&c->sessions, &at));) {
        struct files_session *s = slot->value;

        LIST_EACH(&s->files, f, struct copied_file, item) {
            if (s->place == p)
                begin_pending(c, f);
        }
    }
    send_files(c, p);
}

static bool may_send(void *ctx, struct str session)
{
    struct file_copy *c = ctx;
    const struct files_session *s;

    c->o.collect(c->o.ctx);
    s = c->n_pending > 0 ? map_get(&c->sessions, session) : NULL;
    return !s || s->n_pending == 0;
}

static bool has_all(void *ctx, uint32_t place)
{
    const struct files_place *p = get_place(ctx, place);

    return p->in_flight == 0 && list_is_empty(&p->pending);
}

static bool fetch_files(void *ctx, uint32_t place, struct str session)
{
    struct file_copy *c = ctx;
    struct files_session *s = map_get(&c->sessions, session);

    (void)place;
    if (!s)
        return false;
    read_next(c, s); /* ends at once if all files are here */
    return true;
}

static const struct copy_hooks hooks = {on_lengths_begin, take_log, on_lengths_end,
                                        may_send,         has_all,  fetch_files};

static void drop_session(struct file_copy *c, struct files_session *s)
{
    struct copied_file *f;

    LIST_EACH(&s->files, f, struct copied_file, item) {
        drop_file(c, f);
    }
    (void)map_take(&c->sessions, id_of(s));
    if (s->n_pending > 0) /* its last records wait for nothing now */
        second_copy_resume(c->o.copy, id_of(s));
    free_session(c, s);
}

void file_copy_sweep(struct file_copy *c)
{
    VEC(struct files_session *) dropped = {0};
    struct map_slot *slot;

    c->o.collect(c->o.ctx);
    for (size_t at = 0; (slot = map_next(&c->sessions, &at));) {
        struct files_session *s = slot->value;

        if (s->place->epoch > 0 && !c->o.is_needed(c->o.ctx, id_of(s)))
            *vec_push(&dropped) = s;
    }
    for (size_t i = 0; i < dropped.n; i++)
        drop_session(c, dropped.at[i]);
    vec_done(&dropped);
}

/* --- making --- */

struct file_copy *file_copy_new(const struct file_copy_options *o)
{
    struct file_copy *c = mem_zalloc(sizeof(*c));

    c->o = *o;
    second_copy_set_hooks(o->copy, &hooks, c);
    return c;
}

void file_copy_free(struct file_copy *c)
{
    struct map_slot *slot;

    if (!c)
        return;
    loop_timer_stop(c->o.loop, &c->again);
    loop_task_cancel(c->o.loop, &c->work);
    for (size_t at = 0; (slot = map_next(&c->sessions, &at));)
        free_session(c, slot->value);
    map_done(&c->sessions);
    for (size_t i = 0; i < c->places.n; i++)
        free(c->places.at[i]);
    vec_done(&c->places);
    free(c);
}
