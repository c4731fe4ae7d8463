/*
 * POST /sessions/{id}/fork: makes a new session with copies of the records that led to one answer,
 * and links to the session's pictures. The fork's first record contains the number of these
 * records, so they are read twice: once to be counted, once to be written (copying.h). A helper
 * links the pictures, if there are any. The original session stays in memory meanwhile.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json_build.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "worker/dialect/responses.h"
#include "worker/media/media_store.h"
#include "worker/plane/control/copying.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/session/record/session_fork.h"
#include "worker/session/store/session.h"

struct forking {
    struct copying copy;
    /* the original session, pinned */
    struct session *source;
    struct session_fork fork;
    struct fork_reader reader;
    const struct json *body;
    /* memory of the body, and of the fork's options */
    struct arena arena;
    /* the record that is being written */
    struct buf record;
    char id[ID_TEXT_MAX];
};

/* Returns the fork's options: the session's, replaced by those of the request, and the number of
 * records to copy. A fork belongs to its caller: the dispatcher does not end it with its
 * attempt. */
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

/* Writes the fork's beginning when the others are counted. What the request says is checked by it.
 */
MAY_PAUSE static int write_beginning(struct forking *f, struct err *e)
{
    int rc;

    while ((rc = session_fork_scan(&f->reader, e)) == 0)
        if (task_pause(e))
            return -1;
    if (rc < 0 || session_create_record(
                      f->copy.answer->request.service->calls.store, f->fork.id,
                      options_of(&f->arena, f->source, f->body, session_fork_records(&f->reader)),
                      f->fork.now_ms, &f->record, e))
        return -1;
    return copying_write(&f->copy, buf_str(&f->record), false, e);
}

MAY_PAUSE static int write_records(struct forking *f, struct err *e)
{
    int rc = write_beginning(f, e);
    bool last = false;

    while (rc == 0 && !last) {
        buf_clear(&f->record);
        rc = session_fork_next(&f->reader, &f->record, e);
        last = rc == 1;
        if (rc >= 0)
            rc = copying_write(&f->copy, buf_str(&f->record), last, e);
    }
    return rc;
}

/* --- pictures --- */

static int link_pictures(void *ctx, void *tool, struct err *e)
{
    const struct forking *f = ctx;

    (void)tool;
    return media_store_lend(f->copy.answer->request.service->calls.media, session_id(f->source),
                            f->fork.id, e);
}

/* --- starting and ending --- */

static void forking_free(struct forking *f, struct session_store *st)
{
    session_fork_done(&f->reader);
    session_unpin(st, f->source);
    arena_done(&f->arena);
    buf_done(&f->record);
    free(f);
}

/* Finds errors before the first record is written. */
static int read_fork(struct forking *f, struct err *e)
{
    struct service *a = f->copy.answer->request.service;

    if (service_room(a, 1, e))
        return -1;
    f->fork.response_id = json_string(json_get(f->body, "response_id"));
    if (f->fork.response_id.p)
        f->fork.response_id = response_bare_id(f->fork.response_id);
    f->fork.train_prefix = json_is_true(json_get(f->body, "train_prefix"));
    if (session_fork_begin(f->source, &f->fork, &f->reader, e) != 0)
        return -1;
    f->copy.pictures = media_store_holds(a->calls.media, session_id(f->source));
    return 0;
}

MAY_PAUSE static int write_fork(struct forking *f, struct err *e)
{
    /* linking waits for the disk */
    struct task_work links = {.fn = link_pictures, .ctx = f, .lane = f->fork.id, .is_long = true};

    if (read_fork(f, e) || (f->copy.pictures && task_offload(&links, e)))
        return -1;
    return copying_wait(&f->copy, e) ? -1 : write_records(f, e);
}

static void fork_session(struct answering *a, void *ctx)
{
    struct forking *f = ctx;
    struct err e = {0};
    int rc;

    f->copy.answer = a;
    copying_begin(&f->copy);
    rc = write_fork(f, &e);
    copying_end(&f->copy);
    if (rc == 0)
        answering_end(a);
    else
        answering_fail(a, "", &e);
    forking_free(f, a->request.service->calls.store);
}

void control_fork(struct service_request *r)
{
    struct call_env *env = &r->service->calls;
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct forking *f;

    if (!s) {
        respond_error(r, NULL, &e);
        return;
    }
    f = mem_zalloc(sizeof(*f));
    session_pin(s);
    f->source = s;
    f->arena.sum = &env->request_bytes;
    f->body = control_take_body(r, &f->arena);
    f->fork.id = str_of(f->id, ids_session(env->ids, r->service->heritage->index, f->id));
    f->fork.now_ms = clock_wall_ms();
    f->copy = (struct copying){.id = f->fork.id,
                               .now_ms = f->fork.now_ms,
                               .told_as = "forked_from",
                               .from = session_id(s)};
    answering_start(r, fork_session, f);
}
