/*
 * Writes and reads snapshots. Writing reads the session's records back from the journal, one at a
 * time, and makes frames of those that made its content. Reading trusts nothing: the frames are
 * split, each record gets the new session's id and a new time, and all of them are applied to a
 * temporary store. Only if they make a session there, they are given to the caller, who journals
 * and applies them after checking the pictures that they name.
 */
#include "worker/session/record/snapshot.h"

#include <string.h>

#include "common/base/cancel.h"
#include "common/base/lookup.h"
#include "common/base/map.h"
#include "common/codec/crc32c.h"
#include "common/codec/json.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"
#include "worker/text/request/images.h"

enum { FRAME_HEAD = 4 };

/* Largest number of a call, so that later calls have numbers, too. */
static const uint64_t CALL_MAX = (uint64_t)1 << 48;

static bool travels(uint64_t type)
{
    return type == RECORD_CREATE || type == RECORD_COMMIT || type == RECORD_REWARD ||
           type == RECORD_DROP || type == RECORD_SCORE || type == RECORD_BUDGET ||
           type == RECORD_FORK || record_is_fragment(type) || type == RECORD_LOGPROBS ||
           type == RECORD_DOUBT;
}

/* --- writing snapshots --- */

int snapshot_begin(struct session *s, struct snapshot_writer *ret, struct err *e)
{
    if (!s->store->source)
        return err_set(e, ERR_INVALID,
                       "without a journal (--durability none) sessions have no snapshots");
    if (session_refuse_lossy(s, e))
        return -1;
    *ret = (struct snapshot_writer){.session = s, .end = s->record};
    return 0;
}

/* Where a frame is written. */
struct snapshot_frame {
    struct snapshot_writer *writer;
    struct buf *out;
};

static int take_record(void *ctx, size_t i, struct str record, struct err *e)
{
    const struct snapshot_frame *f = ctx;
    struct snapshot_writer *w = f->writer;
    struct record_in r = record_in_of(record);
    struct record_head h;
    uint32_t n = (uint32_t)record.len;

    (void)i;
    if (!record_read_head(&r, &h))
        return err_set(e, ERR_IO, "session record: torn");
    if (!travels(h.type))
        return 0;
    buf_add(f->out, &n, sizeof(n));
    buf_add_str(f->out, record);
    w->crc = crc32c(crc32c(w->crc, &n, sizeof(n)), record.p, record.len);
    w->n++;
    return 0;
}

int snapshot_next(struct snapshot_writer *w, struct buf *frames, struct err *e)
{
    const struct session_store *st = w->session->store;
    struct snapshot_frame f = {w, frames};

    if (w->at == w->end)
        return 1;
    if (st->source(st->source_ctx, w->session->id, &w->at, 1,
                   &(struct session_reader){take_record, &f}, e) != 0)
        return -1;
    w->at++;
    return 0;
}

/* --- reading snapshots --- */

struct snapshot_reader {
    const struct snapshot_target *to;
    struct arena *arena;
    struct snapshot_records *records;
    uint64_t newest_ms;
    struct err *e;
};

static int bad(const struct snapshot_reader *r, size_t i, const char *what)
{
    return err_field(r->e, "records", "records: record %zu %s", i, what);
}

/* Returns, in the arena, whether a later record of that call names its fragments. */
static bool *named_by(const struct snapshot_reader *r, struct map *calls, uint64_t call)
{
    struct str key = str_of((const char *)&call, sizeof(call));
    bool *named = map_get(calls, key);

    if (!named) {
        named = ARENA_NEW(r->arena, bool);
        (void)map_set(calls, arena_str(r->arena, key), named);
    }
    return named;
}

/* Drops fragments that no commit names. They would be dropped from the journal at some time, and
 * the session would then have fewer records than it announced. */
static void drop_void(const struct snapshot_reader *r)
{
    struct snapshot_records *all = r->records;
    size_t n = all->all.n, kept = n;
    struct map calls = {0};

    for (size_t i = n; i-- > 0;) {
        struct session_request commit;
        struct str id;
        uint64_t call;
        bool first, *named = NULL;

        if (session_record_fragment(all->all.at[i], &call, &first)) {
            named = named_by(r, &calls, call);
            if (*named)
                all->all.at[--kept] = all->all.at[i];
            *named = *named && !first;
            continue;
        }
        if (session_record_commits(all->all.at[i], &id, &commit))
            *named_by(r, &calls, commit.call) = commit.has_bulk;
        all->all.at[--kept] = all->all.at[i];
    }
    memmove(all->all.at, all->all.at + kept, (n - kept) * sizeof(*all->all.at));
    all->all.n = n - kept;
    map_done(&calls);
}

/* Splits the frames into records, whose content is checked before it is used. */
static int split(struct snapshot_reader *r, struct str frames)
{
    for (size_t at = 0, i = 0; at < frames.len; i++) {
        struct record_head h;
        struct record_in in;
        uint64_t call;
        uint32_t n;
        bool first;

        if (frames.len - at < FRAME_HEAD)
            return bad(r, i, "is cut");
        memcpy(&n, frames.p + at, sizeof(n));
        at += FRAME_HEAD;
        if (n > frames.len - at)
            return bad(r, i, "is cut");
        in = record_in_of(str_sub(frames, at, n));
        if (!record_read_head(&in, &h))
            return bad(r, i, "has no head");
        if (!travels(h.type) || (h.type == RECORD_CREATE) != (i == 0))
            return bad(r, i, "is of a type that cannot stand there");
        if ((h.type == RECORD_COMMIT || h.type == RECORD_DROP || record_is_fragment(h.type)) &&
            record_u(&in) > CALL_MAX)
            return bad(r, i, "has a call's number above 2^48");
        if (record_is_fragment(h.type) &&
            !session_record_fragment(str_sub(frames, at, n), &call, &first))
            return bad(r, i, "is cut");
        r->newest_ms = MAX_OF(r->newest_ms, h.at_ms);
        *vec_push(&r->records->all) = str_sub(frames, at, n);
        at += n;
    }
    if (r->records->all.n == 0)
        return err_field(r->e, "records", "records: there are none");
    drop_void(r);
    return 0;
}

/* Returns the number of records that make the session, without rows that stay out of the second
 * copy. */
static int64_t count_records(const struct snapshot_reader *r)
{
    int64_t n = 0;

    for (size_t i = 0; i < r->records->all.n; i++)
        n += !r->to->trial->defaults.rows_apart || !session_record_is_rows(r->records->all.at[i]);
    return n; /* less the beginning, plus the import's own */
}

/* Writes the options of the new session: without the dispatcher's attempt, with which it must not
 * end, and with the number of all later records that make the session, including the import's own.
 * Options that are no object stay unchanged, and are refused when they are applied. */
static void put_options(const struct snapshot_reader *r, struct record_in *in, struct buf *b)
{
    struct str given = record_str(in);
    const struct json *options = NULL;
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    if (json_parse(r->arena, given, &options, NULL) != 0 ||
        (!json_is_null(options) && options->kind != JSON_OBJECT)) {
        record_put_str(b, given);
        return;
    }
    json_out_obj(&o);
    for (uint32_t i = 0; json_is(options, JSON_OBJECT) && i < options->n; i++) {
        struct str name = json_string(&options->members[i].key);

        if (str_eq_c(name, "dispatched") || str_eq_c(name, "copies"))
            continue;
        json_out_member_of(&o, name, &options->members[i].value);
    }
    json_out_member_i64(&o, "copies", count_records(r));
    json_out_end_obj(&o);
    record_put_str(b, buf_str(&text));
    buf_done(&text);
}

/* Gives the record the new session's id and its new time. */
static void move_over(const struct snapshot_reader *r, struct str *record)
{
    struct record_in in = record_in_of(*record);
    struct buf b = {0};
    struct record_head h;

    (void)record_read_head(&in, &h);
    h.id = r->to->id;
    h.type = session_copied_type(r->to->trial, h.type);
    h.at_ms = r->to->now_ms - MIN_OF(r->newest_ms - h.at_ms, r->to->now_ms);
    record_put_head(&b, &h);
    if (h.type == RECORD_CREATE)
        put_options(r, &in, &b);
    buf_add(&b, in.p, (size_t)(in.end - in.p));
    *record = arena_str(r->arena, buf_str(&b));
    buf_done(&b);
}

/* Appends the record of the import. Records after it are the new session's own. */
static void put_import(const struct snapshot_reader *r)
{
    struct buf b = {0};

    record_begin(&b, RECORD_IMPORT, r->to->id, r->to->now_ms);
    *vec_push(&r->records->all) = arena_str(r->arena, buf_str(&b));
    buf_done(&b);
}

/* Checks that each answer was requested with the ids that the records have before it, as exports
 * check later (trajectory.c): a hash is passed down the tree, from each answer to those that
 * continue it. */
static int check_prompts(const struct snapshot_reader *r, const struct session *s)
{
    const struct forest *f = &s->forest;
    uint64_t *before = arena_alloc(r->arena, f->checkpoints.n * sizeof(*before));
    int32_t *ids = NULL;
    size_t room = 0;

    for (size_t i = 0; i < f->checkpoints.n; i++) {
        const struct checkpoint *t = f->checkpoints.at[i], *p = t->parent;
        uint64_t h = IDS_HASH_NONE;

        if (cancel_wanted())
            return cancel_fail(r->e);
        if (t->text)
            continue; /* the answer has no ids */
        if (t->n_context > room) {
            room = t->n_context;
            ids = arena_alloc(r->arena, room * sizeof(*ids));
        }
        if (p)
            h = ids_hash(before[p->id], checkpoint_ids(p), p->n - t->trim);
        checkpoint_copy_part(t, p ? p->total - t->trim : 0, t->n_context, ids);
        before[t->id] = ids_hash(h, ids, t->n_context);
        if ((t->sent && t->sent != before[t->id]) ||
            f->calls.at[t->call]->prompt_tokens != checkpoint_start(t))
            return err_field(r->e, "records",
                             "records: the prompt of answer %.*s is not what its engine was asked "
                             "with",
                             (int)MIN_OF(t->response_id.len, 64), t->response_id.p);
    }
    return 0;
}

/* Checks the session that the records make in the trial store. */
static int check_session(const struct snapshot_reader *r, struct session_store *trial)
{
    bool ended;
    struct session *s = session_find_any(trial, r->to->id, &ended);

    if (!s || session_has_ended(s))
        return err_field(r->e, "records", "records: they make no session that can go on");
    if (!s->origin)
        return err_field(r->e, "records", "records: they do not tell the tokenizer of their ids");
    return session_refuse_foreign(s, r->e) ? -1 : check_prompts(r, s);
}

static int apply_all(const struct snapshot_reader *r, struct session_store *trial)
{
    for (size_t i = 0; i < r->records->all.n; i++) {
        struct err why = {0};

        if (cancel_wanted())
            return cancel_fail(r->e);
        if (session_apply(trial, r->records->all.at[i], &why) != 0)
            return err_field(r->e, "records", "records: record %zu does not fit: %s", i, why.text);
    }
    return check_session(r, trial);
}

/* --- pictures --- */

void snapshot_images(const struct session *s,
                     void (*each)(void *ctx, const struct image_part *image), void *ctx)
{
    const struct forest *f = &s->forest;

    for (size_t i = 0; f->has_images && i < f->nodes.n; i++) {
        const struct json *content = json_get(f->nodes.at[i]->msg.json, "content");

        for (uint32_t k = 0; json_is(content, JSON_ARRAY) && k < content->n; k++) {
            struct image_part image;

            if (!image_part_is(&content->items[k]))
                continue;
            image_part_read(&content->items[k], &image);
            each(ctx, &image);
        }
    }
}

/* Checks a content part that says it is a picture. Because its author is not known, numbers that
 * would not fit their type, and pictures without bytes, are refused: this gateway never makes such
 * a part. */
static int check_part(const struct snapshot_reader *r, const struct json *part)
{
    struct err why = {0};

    if (!str_eq_c(json_string(json_get(part, "type")), "image") ||
        image_part_check(part, &why) == 0)
        return 0;
    return err_field(r->e, "records", "records: they have an image that is none: %s", why.text);
}

static int check_parts(const struct snapshot_reader *r, const struct session *s)
{
    const struct forest *f = &s->forest;

    for (size_t i = 0; i < f->nodes.n; i++) {
        const struct json *content = json_get(f->nodes.at[i]->msg.json, "content");

        for (uint32_t k = 0; json_is(content, JSON_ARRAY) && k < content->n; k++)
            if (check_part(r, &content->items[k]) != 0)
                return -1;
    }
    return 0;
}

struct image_listing {
    const struct snapshot_reader *reader;
    struct lookup places; /* indexes in records->images, by hash */
    int rc;
};

/* Lists a picture. A picture's part depends only on its bytes, so two different parts of one
 * picture are not from a gateway. */
static void list_image(void *ctx, const struct image_part *image)
{
    struct image_listing *l = ctx;
    struct snapshot_records *all = l->reader->records;
    uint32_t place = lookup_get(&l->places, image->media);
    struct image_part own = *image;

    if (place != LOOKUP_NONE) {
        if (l->rc == 0 && !image_part_equal(image, &all->images.at[place]))
            l->rc =
                err_field(l->reader->e, "records", "records: the image %.*s is told in two ways",
                          (int)MIN_OF(image->media.len, 64), image->media.p);
        return;
    }
    own.media = arena_str(l->reader->arena, image->media);
    own.format = arena_str(l->reader->arena, image->format);
    (void)lookup_add(&l->places, own.media, (uint32_t)all->images.n);
    *vec_push(&all->images) = own;
}

static int list_images(const struct snapshot_reader *r)
{
    struct image_listing l = {.reader = r, .places = {.arena = r->arena}};
    bool ended;
    const struct session *s = session_find_any(r->to->trial, r->to->id, &ended);

    if (check_parts(r, s) != 0)
        return -1;
    snapshot_images(s, list_image, &l);
    return l.rc;
}

struct session_store *snapshot_trial(const struct session_store *to)
{
    return session_store_new(to->model, &to->defaults);
}

int snapshot_read(const struct snapshot_target *to, struct str frames, struct arena *a,
                  struct snapshot_records *ret, struct err *e)
{
    struct snapshot_reader r = {.to = to, .arena = a, .records = ret, .e = e};

    if (split(&r, frames) != 0)
        return -1;
    for (size_t i = 0; i < ret->all.n; i++)
        move_over(&r, &ret->all.at[i]);
    put_import(&r);
    return apply_all(&r, to->trial) != 0 || list_images(&r) != 0 ? -1 : 0;
}
