/* Writes one piece a step: a picture's beginning, some of its bytes (a multiple of three, so that
 * their base64 joins up), its end, or one note of a URL (snapshot_pictures.h). */
#include "worker/plane/control/snapshot_pictures.h"

#include <stdlib.h>

#include "common/base/lookup.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/codec/sha256.h"
#include "worker/media/media_store.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/session.h"
#include "worker/text/request/images.h"

enum { PIECE_BYTES = 24 << 10 };

_Static_assert(PIECE_BYTES % 3 == 0, "base64 of pieces joins up");

/* A picture of the session. */
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
    size_t at;              /* index of the picture that is being written */
    struct media_file file; /* file of that picture, while `hash` is set */
    struct sha256 *hash;
    struct buf piece;
    struct media_pins pins;
    bool notes, any_note; /* all pictures are written; a note was written */
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

struct snapshot_pictures *snapshot_pictures_new(const struct media_store *store,
                                                const struct session *s)
{
    struct snapshot_pictures *p = mem_zalloc(sizeof(*p));

    p->store = store;
    p->session = s;
    p->known.arena = &p->arena;
    p->file.fd = -1;
    snapshot_images(s, add_picture, p);
    if (p->all.n > 0)
        return p;
    snapshot_pictures_free(p);
    return NULL;
}

void snapshot_pictures_free(struct snapshot_pictures *p)
{
    if (!p)
        return;
    media_file_close(&p->file);
    sha256_drop(p->hash);
    media_pins_close(&p->pins);
    buf_done(&p->piece);
    vec_done(&p->all);
    arena_done(&p->arena);
    free(p);
}

/* --- bytes of pictures --- */

static int fail_changed(struct err *e)
{
    return err_set(e, ERR_STORAGE_FAILED, "an image of this session has changed on the disk");
}

static int begin_picture(struct snapshot_pictures *p, struct buf *out, struct err *e)
{
    const struct snapshot_picture *one = &p->all.at[p->at];

    if (media_store_open(p->store, session_id(p->session), one->media, &p->file, e) != 0) {
        if (e->kind == ERR_NOT_FOUND) /* the picture is on record, so it existed once */
            (void)err_set(e, ERR_STORAGE_FAILED, "an image of this session is gone from the disk");
        return -1;
    }
    if (p->file.left != one->bytes)
        return fail_changed(e);
    p->hash = sha256_begin();
    buf_puts(out, p->at == 0 ? ",\"media\":[" : ",");
    buf_printf(out, "{\"sha256\":\"%.*s\",\"data\":\"", (int)one->media.len, one->media.p);
    return 0;
}

static int end_picture(struct snapshot_pictures *p, struct buf *out, struct err *e)
{
    char hash[SHA256_HEX_LEN + 1];

    sha256_end(p->hash, hash);
    p->hash = NULL;
    media_file_close(&p->file);
    if (!str_eq_c(p->all.at[p->at].media, hash))
        return fail_changed(e);
    buf_puts(out, "\"}");
    if (++p->at == p->all.n)
        buf_puts(out, "]");
    return 0;
}

static int put_piece(struct snapshot_pictures *p, struct buf *out, struct err *e)
{
    size_t n;

    buf_clear(&p->piece);
    if (media_file_read(&p->file, PIECE_BYTES, &p->piece) != 0)
        return fail_changed(e);
    sha256_add(p->hash, buf_str(&p->piece));
    n = base64_encoded_len(p->piece.len);
    base64_encode(p->piece.p, p->piece.len, buf_reserve(out, n));
    out->len += n;
    return p->file.left == 0 ? end_picture(p, out, e) : 0;
}

/* --- pictures from URLs --- */

/* Writes the note of a picture that is in the snapshot. Other notes are of calls that were not
 * committed. */
static void write_url_note(struct snapshot_pictures *p, const char *url, struct str note,
                           struct buf *out)
{
    struct arena a = {0};
    const struct json *part = NULL;
    struct str media = {0};

    if (json_parse(&a, note, &part, NULL) == 0 && image_part_is(part))
        media = json_string(json_get(part, "media"));
    if (media.p && lookup_get(&p->known, media) != LOOKUP_NONE) {
        buf_puts(out, p->any_note ? "," : ",\"media_urls\":[");
        buf_printf(out, "{\"url\":\"%s\",\"sha256\":\"%.*s\"}", url, (int)media.len, media.p);
        p->any_note = true;
    }
    arena_done(&a);
}

static int read_next_url(struct snapshot_pictures *p, struct buf *out, struct err *e)
{
    char url[MEDIA_HASH_MAX];
    int rc;

    buf_clear(&p->piece);
    rc = media_pins_next(&p->pins, url, &p->piece, e);
    if (rc > 0)
        write_url_note(p, url, buf_str(&p->piece), out);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (p->any_note)
        buf_puts(out, "]");
    return 1;
}

int snapshot_pictures_next(struct snapshot_pictures *p, struct buf *out, struct err *e)
{
    if (p->hash)
        return put_piece(p, out, e);
    if (p->at < p->all.n)
        return begin_picture(p, out, e);
    if (p->notes)
        return read_next_url(p, out, e);
    p->notes = true;
    return media_store_pins(p->store, session_id(p->session), &p->pins, e);
}
