/* Pieces have threes of bytes, so that their base64 joins up (snapshot_pictures.h). */
#include "worker/plane/control/snapshot_pictures.h"

#include <stdlib.h>

#include "common/base/lookup.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/codec/sha256.h"
#include "worker/media/media_store.h"
#include "worker/plane/service/answering.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/session.h"
#include "worker/text/request/images.h"

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

struct snapshot_pictures *snapshot_pictures_new(const struct media_store *store,
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

void snapshot_pictures_free(struct snapshot_pictures *p)
{
    if (!p)
        return;
    vec_done(&p->all);
    arena_done(&p->arena);
    free(p);
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
        size_t n;

        buf_clear(&piece);
        rc = media_file_read(file, PIECE_BYTES, &piece) ? fail_changed(e) : 0;
        sha256_add(hash, buf_str(&piece));
        n = base64_encoded_len(piece.len);
        base64_encode(piece.p, piece.len, buf_reserve(&a->out, n));
        a->out.len += n;
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

int snapshot_pictures_write(const struct snapshot_pictures *p, struct answering *a, struct err *e)
{
    for (size_t i = 0; i < p->all.n; i++) {
        buf_puts(&a->out, i == 0 ? ",\"media\":[" : ",");
        if (put_picture(p, &p->all.at[i], a, e))
            return -1;
    }
    buf_add_c(&a->out, ']');
    return put_url_notes(p, a, e);
}
