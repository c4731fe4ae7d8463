/*
 * POST /sessions/{id}/fork: a new session with copies of the records that led to one answer, and
 * links to the session's pictures. How many records those are stands in the fork's first one, so
 * they are read twice: to be counted, and to be written (copying.h). A helper links the pictures,
 * where there are any. The session that is forked stays in memory meanwhile.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json_build.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "worker/call/work.h"
#include "worker/control/copying.h"
#include "worker/control/handlers.h"
#include "worker/dialect/responses.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"
#include "worker/session/session_fork.h"

struct forking {
    struct copying copy;
    struct long_work work;
    struct session *source; /* pinned */
    struct session_fork fork;
    struct fork_reader reader;
    bool counted; /* the records that are to be copied are known */
    const struct json *body;
    struct arena arena; /* of the body, and the fork's options */
    struct buf record;  /* the one on its way */
    char id[ID_TEXT_MAX];
};

/* Not when a helper is stuck in it. */
static void forking_free(struct copying *c)
{
    struct forking *f = CONTAINER_OF(c, struct forking, copy);

    session_fork_done(&f->reader);
    session_unpin(c->request.service->calls.store, f->source);
    arena_done(&f->arena);
    buf_done(&f->record);
    free(f);
}

/* The options of the session, with those of the request in their place, and how many records make
 * the copy. A fork is its caller's: the dispatcher does not end it with its attempt. */
static const struct json *options_of(struct arena *a, const struct session *s,
                                     const struct json *body, size_t n_copies)
{
    static const char *const ours[] = {"labels", "metadata", "sampling_params"};
    struct buf text = {0};
    const struct json *was = NULL, *metadata = session_metadata(s);
    struct json *o = arena_alloc(a, sizeof(*o));

    session_write_options(s, &text);
    *o = json_empty(JSON_OBJECT);
    if (json_parse(a, arena_str(a, buf_str(&text)), &was, NULL) == 0) {
        for (uint32_t i = 0; i < was->n; i++) {
            struct str name = json_string(&was->members[i].key);
            const struct json *given = NULL;

            for (size_t k = 0; k < ARRAY_LEN(ours); k++)
                given = str_eq_c(name, ours[k]) ? json_get(body, ours[k]) : given;
            if (json_is_null(given) && !str_eq_c(name, "dispatched"))
                json_put(a, o, arena_cstr(a, name), was->members[i].value);
        }
    }
    for (size_t k = 0; k < ARRAY_LEN(ours); k++) {
        if (!json_is_null(json_get(body, ours[k])))
            json_put(a, o, ours[k], *json_get(body, ours[k]));
    }
    if (metadata && json_is_null(json_get(body, "metadata")))
        json_put(a, o, "metadata", *metadata);
    json_put(a, o, "copies", json_make_i64(a, (int64_t)n_copies));
    buf_done(&text);
    return o;
}

/* The fork's beginning, or nothing before the others are counted; what the request says is checked
 * by it. */
static int make_beginning(struct forking *f, struct err *e)
{
    int rc = session_fork_look(&f->reader, e);

    if (rc <= 0)
        return rc;
    f->counted = true;
    return session_create_record(
        f->copy.request.service->calls.store, f->fork.id,
        options_of(&f->arena, f->source, f->body, session_fork_records(&f->reader)), f->fork.now_ms,
        &f->record, e);
}

static int next_record(struct copying *c, struct str *ret, struct err *e)
{
    struct forking *f = CONTAINER_OF(c, struct forking, copy);
    int rc;

    buf_clear(&f->record);
    rc = f->counted ? session_fork_next(&f->reader, &f->record, e) : make_beginning(f, e);
    *ret = f->counted ? buf_str(&f->record) : (struct str){0};
    return rc;
}

/* --- pictures --- */

static int lend_run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    const struct forking *f = CONTAINER_OF(w, struct forking, work);

    (void)tools;
    return media_store_lend(w->env->media, session_id(f->source), f->fork.id, e);
}

static void on_lent(struct long_work *w, const struct err *e)
{
    struct forking *f = CONTAINER_OF(w, struct forking, work);

    if (w->stuck) /* the helper may still link some */
        respond_error(&f->copy.request, NULL, e);
    else if (e)
        copying_fail(&f->copy, e);
    else
        copying_write(&f->copy);
}

/* The client left, and the helper has let go. */
static void on_dropped(struct long_work *w)
{
    copying_drop(&CONTAINER_OF(w, struct forking, work)->copy);
}

/* --- life --- */

static struct forking *forking_new(struct service_request *r, struct session *s)
{
    struct call_env *env = &r->service->calls;
    struct forking *f = mem_zalloc(sizeof(*f));

    session_pin(s);
    f->source = s;
    f->arena.sum = &env->request_bytes;
    f->fork.id = str_of(f->id, ids_session(env->ids, r->service->heritage->index, f->id));
    f->fork.now_ms = clock_wall_ms();
    f->copy = (struct copying){.request = *r,
                               .id = f->fork.id,
                               .now_ms = f->fork.now_ms,
                               .told_as = "forked_from",
                               .from = session_id(s),
                               .next = next_record,
                               .free = forking_free};
    f->work =
        (struct long_work){.run = lend_run, .done = on_lent, .drop = on_dropped, .exchange = r->x};
    copying_enter(&f->copy);
    return f;
}

/* What is wrong is found before the first record. */
static int begin_fork(struct forking *f, struct err *e)
{
    struct service_request *r = &f->copy.request;

    f->body = control_take_body(r, &f->arena);
    if (service_room(r->service, 1, e))
        return -1;
    f->fork.response_id = json_string(json_get(f->body, "response_id"));
    if (f->fork.response_id.p)
        f->fork.response_id = response_bare_id(f->fork.response_id);
    f->fork.train_prefix = json_is_true(json_get(f->body, "train_prefix"));
    if (session_fork_begin(f->source, &f->fork, &f->reader, e) != 0)
        return -1;
    f->copy.pictures = media_store_holds(r->service->calls.media, session_id(f->source));
    f->work.is_long = f->copy.pictures; /* a disk */
    return 0;
}

/* Writes it, once its pictures are there. */
static void go_on(struct forking *f)
{
    struct err e = {0};

    switch (
        work_begin(&f->copy.request.service->calls, &f->work, f->fork.id, !f->copy.pictures, &e)) {
    case WORK_DONE:
        copying_write(&f->copy);
        break;
    case WORK_FAILED:
        copying_fail(&f->copy, &e);
        break;
    case WORK_HELPED:
        break;
    }
}

void control_fork(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct forking *f;

    if (!s) {
        respond_error(r, NULL, &e);
        return;
    }
    f = forking_new(r, s);
    if (begin_fork(f, &e) != 0)
        copying_fail(&f->copy, &e);
    else
        go_on(f);
}
