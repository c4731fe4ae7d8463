/*
 * GET /sessions/{id}/snapshot: sends a whole session as one JSON object, for POST /sessions/import:
 * the records, the pictures that they name, and the records' checksum at the end. The object is
 * made as fast as the client reads it.
 */
#include <stdlib.h>

#include "common/base/lookup.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/codec/sha256.h"
#include "worker/media/media_store.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/session.h"
#include "worker/text/request/images.h"

/* --- pictures --- */

enum { PIECE_BYTES = 24 << 10 };

_Static_assert(PIECE_BYTES % 3 == 0, "base64 of pieces joins up");

struct snapshot_picture {
    struct str media;
    uint64_t bytes;
};

struct snapshot_pictures {
    const struct media_store *store;
    const struct session *session;
    struct arena arena;
    struct lookup known; /* indexes in `all`, by hash */
    VEC(struct snapshot_picture) all;
};

static void add_picture(void *ctx, const struct image_part *image)
{
    struct snapshot_pictures *p = ctx;
    struct str media;

    if (lookup_get(&p->known, image->media) != LOOKUP_NONE)
        return;
    media = arena_str(&p->arena, image->media);
    (void)lookup_add(&p->known, media, (uint32_t)p->all.n);
    *vec_push(&p->all) = (struct snapshot_picture){media, image->bytes};
}

/* Frees the list. Accepts NULL. */
static void snapshot_pictures_free(struct snapshot_pictures *p)
{
    if (!p)
        return;
    vec_done(&p->all);
    arena_done(&p->arena);
    free(p);
}

/* Lists the pictures that the session's messages show now. Returns NULL if there are none. `s`,
 * which the caller pins, and the store must outlive the list. */
static struct snapshot_pictures *snapshot_pictures_new(const struct media_store *store,
                                                       const struct session *s)
{
    struct snapshot_pictures *p = mem_zalloc(sizeof(*p));

    p->store = store;
    p->session = s;
    p->known.arena = &p->arena;
    snapshot_images(s, add_picture, p);
    if (p->all.n > 0)
        return p;
    snapshot_pictures_free(p);
    return NULL;
}

/* --- bytes of pictures --- */

static int fail_changed(struct err *e)
{
    return err_set(e, ERR_STORAGE_FAILED, "an image of this session has changed on the disk");
}

static int open_picture(const struct snapshot_pictures *p, const struct snapshot_picture *one,
                        struct media_file *ret, struct err *e)
{
    if (media_store_open(p->store, session_id(p->session), one->media, ret, e) != 0) {
        if (e->kind == ERR_NOT_FOUND) /* it is on record, so it was there */
            (void)err_set(e, ERR_STORAGE_FAILED, "an image of this session is gone from the disk");
        return -1;
    }
    return ret->left == one->bytes ? 0 : fail_changed(e);
}

/* Writes the file in base64, and its hash. */
MAY_PAUSE static int put_file(struct answering *a, struct media_file *file, struct sha256 *hash,
                              struct err *e)
{
    struct buf piece = {0};
    int rc;

    do {
        buf_clear(&piece);
        rc = media_file_read(file, PIECE_BYTES, &piece) ? fail_changed(e) : 0;
        sha256_add(hash, buf_str(&piece));
        base64_append(&a->out, piece.p, piece.len);
        if (rc == 0)
            rc = answering_flow(a, e);
    } while (rc == 0 && file->left > 0);
    buf_done(&piece);
    return rc;
}

MAY_PAUSE static int put_picture(const struct snapshot_pictures *p,
                                 const struct snapshot_picture *one, struct answering *a,
                                 struct err *e)
{
    struct media_file file = {.fd = -1};
    char hash[SHA256_HEX_LEN + 1] = "";
    int rc = open_picture(p, one, &file, e);

    if (rc == 0) {
        struct sha256 *h = sha256_begin();

        buf_printf(&a->out, "{\"sha256\":\"%.*s\",\"data\":\"", (int)one->media.len, one->media.p);
        rc = put_file(a, &file, h, e);
        buf_puts(&a->out, "\"}");
        sha256_end(h, hash);
    }
    media_file_close(&file);
    return rc == 0 && !str_eq_c(one->media, hash) ? fail_changed(e) : rc;
}

/* --- pictures from URLs --- */

/* Writes the note of a picture that is in the snapshot. Other notes are of calls that were not
 * committed. */
static bool put_url_note(const struct snapshot_pictures *p, const char *url, struct str note,
                         bool first, struct buf *out)
{
    struct arena a = {0};
    const struct json *part = NULL;
    struct str media = {0};
    bool known;

    if (json_parse(&a, note, &part, NULL) == 0 && image_part_is(part))
        media = json_string(json_get(part, "media"));
    known = media.p && lookup_get(&p->known, media) != LOOKUP_NONE;
    if (known) {
        buf_puts(out, first ? ",\"media_urls\":[" : ",");
        buf_printf(out, "{\"url\":\"%s\",\"sha256\":\"%.*s\"}", url, (int)media.len, media.p);
    }
    arena_done(&a);
    return known;
}

MAY_PAUSE static int put_url_notes(const struct snapshot_pictures *p, struct answering *a,
                                   struct err *e)
{
    struct media_pins pins = {0};
    struct buf note = {0};
    char url[MEDIA_HASH_MAX];
    bool any = false;
    int rc;

    if (media_store_pins(p->store, session_id(p->session), &pins, e))
        return -1;
    while ((rc = media_pins_next(&pins, url, &note, e)) > 0) {
        any |= put_url_note(p, url, buf_str(&note), !any, &a->out);
        buf_clear(&note);
        if ((rc = answering_flow(a, e)))
            break;
    }
    if (any)
        buf_add_c(&a->out, ']');
    media_pins_close(&pins);
    buf_done(&note);
    return rc;
}

/* Writes both members, a comma in front of each. -1: a picture is gone, or has changed on the
 * disk. */
MAY_PAUSE RG_MUSTCHECK static int snapshot_pictures_write(const struct snapshot_pictures *p,
                                                          struct answering *a, struct err *e)
{
    for (size_t i = 0; i < p->all.n; i++) {
        buf_puts(&a->out, i == 0 ? ",\"media\":[" : ",");
        if (put_picture(p, &p->all.at[i], a, e))
            return -1;
    }
    buf_add_c(&a->out, ']');
    return put_url_notes(p, a, e);
}

/* --- snapshots --- */

/* bytes that are encoded at once; a multiple of three, for base64 */
enum { STEP_BYTES = 24 << 10 };

/* Encodes the frames except an incomplete group of three bytes, which stays in `frames` unless it
 * is the last. */
MAY_PAUSE static int put_frames(struct answering *a, struct buf *frames, bool last, struct err *e)
{
    size_t n = frames->len - (last ? 0 : frames->len % 3);

    for (size_t at = 0; at < n; at += STEP_BYTES) {
        base64_append(&a->out, frames->p + at, MIN_OF(n - at, (size_t)STEP_BYTES));
        if (answering_flow(a, e))
            return -1;
    }
    buf_consume(frames, n);
    return 0;
}

MAY_PAUSE static int put_records(struct answering *a, struct snapshot_writer *w, struct err *e)
{
    struct buf frames = {0};
    int rc;

    do {
        rc = snapshot_next(w, &frames, e);
        if (rc >= 0 && put_frames(a, &frames, rc == 1, e))
            rc = -1;
    } while (rc == 0);
    buf_done(&frames);
    return rc == 1 ? 0 : -1;
}

MAY_PAUSE static int put_all(struct answering *a, struct snapshot_writer *w,
                             struct snapshot_pictures *p, struct err *e)
{
    struct json_out o = json_out_to(&a->out);

    json_out_obj(&o);
    json_out_member_i64(&o, "version", SNAPSHOT_VERSION);
    json_out_member_str(&o, "session_id", session_id(w->session));
    json_out_key(&o, "records");
    buf_add_c(&a->out, '"'); /* base64 needs no escapes */
    if (put_records(a, w, e))
        return -1;
    buf_add_c(&a->out, '"');
    if (p && snapshot_pictures_write(p, a, e))
        return -1;
    o = (struct json_out){&a->out, true};
    json_out_member_i64(&o, "n_records", w->n);
    json_out_member_i64(&o, "crc32c", w->crc);
    buf_add_c(&a->out, '}');
    return 0;
}

static void write_snapshot(struct answering *a, void *ctx)
{
    struct session *s = ctx;
    struct snapshot_pictures *p = NULL;
    struct snapshot_writer w;
    struct err e = {0};
    int rc = snapshot_begin(s, &w, &e);

    if (rc == 0) { /* the pictures that these records name */
        p = snapshot_pictures_new(a->request.service->calls.media, s);
        rc = put_all(a, &w, p, &e);
    }
    if (rc == 0)
        answering_end(a);
    else
        answering_fail(a, "a session's snapshot cannot be told", &e);
    snapshot_pictures_free(p);
    session_unpin(a->request.service->calls.store, s);
}

void control_snapshot(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);

    if (!s) {
        respond_error(r, NULL, &e);
        return;
    }
    session_pin(s);
    answering_start(r, write_snapshot, s);
}
