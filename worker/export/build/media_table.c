/*
 * A picture is opened twice. media_note opens it while its trajectory is prepared, so that a
 * missing picture or a wrong size is an error before its bytes are due. It closes the picture
 * again, because an export may have more pictures than a process has descriptors. The rope opens it
 * when its turn comes, reads it piece by piece and hashes the bytes.
 *
 * fetch_picture() always returns as many bytes as were promised, because headers contain the sizes
 * by then. Zeros replace unreadable bytes, and x->failed ends the export before they could be taken
 * for a picture.
 */
#include "worker/export/build/media_table.h"

#include <stdio.h>
#include <string.h>

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/codec/sha256.h"
#include "worker/export/build/export.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/media/media_store.h"
#include "worker/session/store/session_view.h"
#include "worker/text/request/images.h"

/* One picture of the table. */
struct export_picture {
    struct export *x;
    const struct json *part; /* the session's part of the picture */
    struct image_part is;    /* fields of the part */
    struct rope_source source;
    struct media_file file; /* used while the picture is read: its `hash` is set */
    struct sha256 *hash;
};

/* --- bytes --- */

static void close_picture(struct export_picture *p)
{
    media_file_close(&p->file);
    sha256_drop(p->hash);
    p->hash = NULL;
}

static int fail_changed_picture(struct err *e)
{
    return err_set(e, ERR_STORAGE_FAILED, "an image of this session has changed on the disk");
}

static int open_picture(struct export_picture *p, struct err *e)
{
    const struct media_store *store = p->x->options.store;

    if (!store)
        return err_set(e, ERR_STORAGE_FAILED, "the images of this session are not at hand");
    if (media_store_open(store, session_view(p->x->session).id, p->is.media, &p->file, e) != 0) {
        if (e->kind == ERR_NOT_FOUND) /* the picture is on record, so it existed */
            (void)err_set(e, ERR_STORAGE_FAILED, "an image of this session is gone from the disk");
        return -1;
    }
    p->hash = sha256_begin();
    return p->file.left == p->is.bytes ? 0 : fail_changed_picture(e);
}

static int check_hash(struct export_picture *p, struct err *e)
{
    char told[SHA256_HEX_LEN + 1];

    sha256_end(p->hash, told);
    p->hash = NULL;
    media_file_close(&p->file);
    return str_eq_c(p->is.media, told) ? 0 : fail_changed_picture(e);
}

static int read_on(struct export_picture *p, size_t n, struct buf *out, struct err *e)
{
    size_t start = out->len;

    if (!p->hash && open_picture(p, e) != 0)
        return -1;
    if (media_file_read(&p->file, n, out) != 0)
        return fail_changed_picture(e);
    sha256_add(p->hash, str_sub(buf_str(out), start, out->len));
    return p->file.left == 0 ? check_hash(p, e) : 0;
}

/* Reads the next bytes of a picture. Unreadable ones fail the export; until that is detected, the
 * sizes hold. */
static void fetch_picture(struct rope_source *source, size_t n, struct buf *out)
{
    struct export_picture *p = CONTAINER_OF(source, struct export_picture, source);
    size_t end = out->len + n;
    struct err e = {0};

    if (p->x->failed.kind == ERR_NONE && read_on(p, n, out, &e) != 0)
        p->x->failed = e;
    if (out->len < end)
        memset(buf_reserve(out, end - out->len), 0, end - out->len);
    out->len = end;
}

bool media_inline(const struct export *x)
{
    return x->options.media == MEDIA_INLINE;
}

/* --- the table --- */

static size_t find_picture(const struct export *x, struct str media)
{
    size_t k = 0;

    while (k < x->media.n && !str_eq(x->media.at[k]->is.media, media))
        k++;
    return k;
}

static struct export_picture *add_picture(struct export *x, const struct json *part)
{
    struct export_picture *p = ARENA_NEW(&x->arena, struct export_picture);

    p->x = x;
    p->part = part;
    p->source.fetch = fetch_picture;
    p->file.fd = -1;
    image_part_read(part, &p->is);
    *vec_push(&x->media) = p;
    return p;
}

int media_note(struct export *x, struct trajectory *t, struct err *e)
{
    for (uint32_t i = 0; i < t->n_images; i++) {
        const struct json *part = t->images[i].part;
        size_t k = find_picture(x, json_string(json_get(part, "media")));
        struct export_picture *p = k == x->media.n ? add_picture(x, part) : NULL;
        int rc = p && media_inline(x) ? open_picture(p, e) : 0;

        t->images[i].place = (uint32_t)k;
        if (p)
            close_picture(p);
        if (rc != 0)
            return -1;
    }
    return 0;
}

void media_drop(struct export *x)
{
    for (size_t k = 0; k < x->media.n; k++)
        close_picture(x->media.at[k]);
    vec_done(&x->media);
}

static void put_path(struct export *x, const struct export_picture *p, struct json_out *o)
{
    struct buf url = {0};

    buf_printf(&url, "/sessions/%.*s/media/%.*s", (int)session_view(x->session).id.len,
               session_view(x->session).id.p, (int)p->is.media.len, p->is.media.p);
    json_out_str(o, buf_str(&url));
    buf_done(&url);
}

/* Adds the bytes to the rope as a JSON string that begins with `head`. */
static void put_base64(struct export *x, struct export_picture *p, const char *head,
                       struct json_out *o)
{
    json_out_raw(o, str_cstr("\""));
    buf_puts(o->b, head);
    rope_add(&x->rope, PIECE_SOURCE_BASE64, &p->source, p->is.bytes);
    buf_add_c(o->b, '"');
}

static void put_row(struct export *x, struct export_picture *p, struct json_out *o)
{
    json_out_obj(o);
    json_out_member_str(o, "sha256", p->is.media);
    json_out_member_str(o, "format", p->is.format);
    json_out_member_i64(o, "width", p->is.width);
    json_out_member_i64(o, "height", p->is.height);
    json_out_member_i64(o, "bytes", p->is.bytes);
    json_out_member_i64(o, "exif_orientation", p->is.orientation);
    json_out_key(o, "url");
    put_path(x, p, o);
    if (media_inline(x) && x->format->media_in_table) {
        json_out_key(o, "data");
        put_base64(x, p, "", o);
    }
    json_out_end_obj(o);
}

void media_write(struct export *x, struct json_out *o)
{
    if (x->media.n == 0 || x->options.media == MEDIA_NONE)
        return;
    json_out_member_arr(o, "media");
    for (size_t k = 0; k < x->media.n; k++)
        put_row(x, x->media.at[k], o);
    json_out_end_arr(o);
}

uint64_t media_size(const struct export *x, size_t place)
{
    return x->media.at[place]->is.bytes;
}

void media_put_bytes(struct export *x, size_t place)
{
    struct export_picture *p = x->media.at[place];

    rope_add(&x->rope, PIECE_SOURCE, &p->source, p->is.bytes);
}

void media_put_url(struct export *x, const struct trajectory_image *image, struct json_out *o)
{
    struct export_picture *p = x->media.at[image->place];
    char head[48];

    if (!media_inline(x)) {
        put_path(x, p, o);
        return;
    }
    (void)snprintf(head, sizeof(head), "data:image/%.*s;base64,", (int)MIN_OF(p->is.format.len, 20),
                   p->is.format.p);
    put_base64(x, p, head, o);
}

/* --- as tensors --- */

void media_put_spans(struct export *x, const struct trajectory *t)
{
    uint64_t n = t->n_images;
    int64_t *places = NULL, *spans = NULL, *grids = NULL;

    if (n == 0)
        return;
    if (tensors_want(x, TENSOR_I64)) {
        places = arena_calloc(&x->scratch, n, sizeof(*places));
        spans = arena_calloc(&x->scratch, 2 * n, sizeof(*spans));
        grids = arena_calloc(&x->scratch, 3 * n, sizeof(*grids));
        for (size_t i = 0; i < n; i++) {
            places[i] = t->images[i].place;
            spans[2 * i] = t->images[i].offset;
            spans[2 * i + 1] = t->images[i].length;
            for (size_t k = 0; k < 3; k++)
                grids[3 * i + k] = x->media.at[t->images[i].place]->is.grid[k];
        }
    }
    tensors_add(x, "image_media", t->index, TENSOR_I64, SHAPE1(n), CELLS(RAW, places));
    tensors_add(x, "image_spans", t->index, TENSOR_I64, SHAPE2(n, 2), CELLS(RAW, spans));
    tensors_add(x, "image_grid_thw", t->index, TENSOR_I64, SHAPE2(n, 3), CELLS(RAW, grids));
}

void media_put_files(struct export *x)
{
    for (size_t k = 0; k < x->media.n && media_inline(x); k++)
        tensors_add(x, "media", k, TENSOR_U8, SHAPE1(x->media.at[k]->is.bytes),
                    CELLS(SOURCE, &x->media.at[k]->source));
}
