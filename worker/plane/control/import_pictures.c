/*
 * Checks the pictures of a snapshot one after the other: the base64 is decoded into memory of its
 * own, checked, and stored, and both memories are freed before the next picture. Nothing that the
 * snapshot says of a picture is trusted: format, size and grid are computed from its bytes and must
 * equal the records', because ids, usage and exports were made with those.
 */
#include "worker/plane/control/import_pictures.h"

#include <stdio.h>

#include "common/base/cancel.h"
#include "common/base/lookup.h"
#include "common/codec/base64.h"
#include "common/codec/fields.h"
#include "common/codec/json_build.h"
#include "common/codec/sha256.h"
#include "common/os/helpers.h"
#include "common/serve/exchange.h"
#include "worker/media/media_store.h"
#include "worker/text/image/image_header.h"
#include "worker/text/image/vision.h"
#include "worker/text/request/images.h"

/* A list of the body that is read item by item. */
struct import_list {
    struct import_pictures *pictures;
    struct arena *arena;
    struct lookup places; /* indexes in pictures->images, by hash */
    bool *came;           /* whether each picture was in the list, by index */
    char at[48];          /* name of the current item, for errors */
    struct err *e;
};

static const struct image_part *image_at(const struct import_list *l, uint32_t place)
{
    return &l->pictures->images[place];
}

static int fail_import(const struct import_list *l, const char *what)
{
    return err_field(l->e, l->at, "%s: %s", l->at, what);
}

/* Reads the two texts of the current object, which must have no other members. */
static int read_texts(const struct import_list *l, const struct json *item,
                      const char *const names[2], struct str ret[2])
{
    struct field_reader f = {.body = item, .e = l->e};

    if (!json_is(item, JSON_OBJECT))
        return fail_import(l, "must be an object");
    if (fields_known(&f, l->at, names, 2) != 0)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        ret[i] = json_string(json_get(item, names[i]));
        if (!ret[i].p)
            return err_field(l->e, l->at, "%s.%s is required: a text", l->at, names[i]);
    }
    return 0;
}

/* Finds the index of this picture in the records. */
static int find_recorded_index(const struct import_list *l, struct str hash, uint32_t *ret)
{
    if (!sha256_is_hex(hash))
        return err_field(l->e, l->at, "%s.sha256 must be 64 hexadecimal digits", l->at);
    *ret = lookup_get(&l->places, hash);
    if (*ret == LOOKUP_NONE)
        return err_field(l->e, l->at, "%s: no record names the image %.*s", l->at, SHA256_HEX_LEN,
                         hash.p);
    return 0;
}

/* --- one picture --- */

static int too_large(const struct import_list *l)
{
    (void)err_field(l->e, l->at, "%s is an image of more than %llu bytes (--max-image-bytes)",
                    l->at, (unsigned long long)l->pictures->image_bytes);
    l->e->kind = ERR_BODY_TOO_LARGE;
    return -1;
}

static int decode_picture(const struct import_list *l, struct str text, struct str *ret)
{
    uint64_t max = l->pictures->image_bytes;
    char *bytes;
    size_t n;

    if (base64_room(text.len) > max + 2)
        return too_large(l);
    bytes = arena_alloc_alone(l->arena, base64_room(text.len) + 1);
    *ret = str_of(bytes, 0);
    if (base64_decode(text, bytes, &n) != 0)
        return err_field(l->e, l->at, "%s.data must be base64", l->at);
    ret->len = n;
    return n > max ? too_large(l) : 0;
}

static int check_grid(const struct import_list *l, const struct image_part *image)
{
    struct vision_grid grid;
    const char *why = l->pictures->vision
                          ? vision_grid(l->pictures->vision, image->width, image->height, &grid)
                          : "the model here takes text only";

    if (why)
        return fail_import(l, why);
    if (grid.tokens != image->tokens || image->grid[0] != 1 || image->grid[1] != grid.height ||
        image->grid[2] != grid.width)
        return err_field(l->e, l->at,
                         "%s: the records have the image as %u tokens in a grid of %u x %u x %u, "
                         "the model here makes %u of it in one of 1 x %u x %u",
                         l->at, image->tokens, image->grid[0], image->grid[1], image->grid[2],
                         grid.tokens, grid.height, grid.width);
    return 0;
}

/* Compares a number that the records have of the picture with the real one. */
static int check_same(const struct import_list *l, const char *name, uint64_t told, uint64_t real)
{
    return told == real
               ? 0
               : err_field(l->e, l->at, "%s: %s is %llu in the records, %llu in the image", l->at,
                           name, (unsigned long long)told, (unsigned long long)real);
}

/* Checks format, size and orientation. */
static int check_header(const struct import_list *l, struct str bytes,
                        const struct image_part *image)
{
    struct image_header h;
    const char *why = image_header_read(bytes, &h), *format;
    struct field_shown shown = {0};

    if (why)
        return fail_import(l, why);
    format = image_format_name(h.format);
    if (!str_eq_c(image->format, format))
        return err_field(l->e, l->at, "%s: format is %s in the records, %s in the image", l->at,
                         field_show_name(image->format, &shown), format);
    if (check_same(l, "bytes", image->bytes, bytes.len) ||
        check_same(l, "width", image->width, h.width) ||
        check_same(l, "height", image->height, h.height))
        return -1;
    return check_same(l, "orientation", image->orientation, h.orientation);
}

/* Checks that the bytes match the records. */
static int check_picture(const struct import_list *l, struct str bytes,
                         const struct image_part *image)
{
    char hash[SHA256_HEX_LEN + 1];

    sha256_hex(bytes, hash);
    if (!str_eq_c(image->media, hash))
        return err_field(l->e, l->at, "%s: the SHA-256 of its data is %s, not %.*s", l->at, hash,
                         SHA256_HEX_LEN, image->media.p);
    return check_header(l, bytes, image) == 0 ? check_grid(l, image) : -1;
}

void import_drop_text(struct exchange *x, struct str text)
{
    struct str body = exchange_body(x);

    if (text.p >= body.p && text.p + text.len <= body.p + body.len)
        exchange_drop_body(x, text);
}

static int read_picture(struct import_list *l, const struct json *item)
{
    static const char *const names[] = {"sha256", "data"};
    struct import_pictures *p = l->pictures;
    struct str texts[2] = {0}, bytes = {0};
    uint32_t place = LOOKUP_NONE;
    int rc;

    if (read_texts(l, item, names, texts) != 0 || find_recorded_index(l, texts[0], &place) != 0)
        return -1;
    if (l->came[place])
        return fail_import(l, "the image stands twice");
    l->came[place] = true;
    rc = decode_picture(l, texts[1], &bytes);
    if (rc == 0)
        rc = check_picture(l, bytes, image_at(l, place));
    if (rc == 0) {
        import_drop_text(p->x, texts[1]);
        p->stored = true;
        rc = media_store_bring(p->store, p->session_id, texts[0], bytes, l->e);
    }
    arena_drop(l->arena, bytes.p);
    return rc;
}

/* --- one URL --- */

static bool is_url_note(struct str text)
{
    return text.len > 0;
}

static int read_url(struct import_list *l, const struct json *item)
{
    static const char *const names[] = {"url", "sha256"};
    const struct import_pictures *p = l->pictures;
    struct media_pin pin = {.session_id = p->session_id, .is_whole = is_url_note};
    struct buf held = {0};
    struct json part, text;
    struct str texts[2] = {0};
    uint32_t place = LOOKUP_NONE;
    int rc;

    if (read_texts(l, item, names, texts) != 0 || find_recorded_index(l, texts[1], &place) != 0)
        return -1;
    if (!sha256_is_hex(texts[0]))
        return err_field(l->e, l->at, "%s.url must be a URL's SHA-256, 64 hexadecimal digits",
                         l->at);
    pin.hash = texts[0];
    part = image_part_make(l->arena, image_at(l, place));
    text = json_text_of(l->arena, &part);
    rc = media_store_bring_pin(p->store, &pin, json_string(&text), &held, l->e);
    buf_done(&held);
    return rc > 0 ? fail_import(l, "the URL stands twice") : rc;
}

/* --- all pictures --- */

static int read_import_list(struct import_list *l, const struct json *body, const char *name,
                            size_t max, int (*take)(struct import_list *l, const struct json *item))
{
    const struct json *list = json_get(body, name);

    if (json_is_null(list))
        return 0;
    if (list->n > max)
        return err_field(l->e, name, "%s: %u are too many, at most %zu can be", name, list->n, max);
    for (uint32_t i = 0; i < list->n; i++) {
        if (cancel_wanted())
            return cancel_fail(l->e);
        helpers_step(); /* each picture waits for the disk */
        (void)snprintf(l->at, sizeof(l->at), "%s[%u]", name, i);
        if (take(l, &list->items[i]) != 0)
            return -1;
    }
    return 0;
}

static int check_all_came(const struct import_list *l)
{
    for (uint32_t i = 0; i < l->pictures->n; i++)
        if (!l->came[i])
            return err_field(l->e, "media",
                             "media: the image %.*s, which the records name, is missing",
                             SHA256_HEX_LEN, image_at(l, i)->media.p);
    return 0;
}

int import_pictures(struct import_pictures *p, struct arena *a, const struct json *body,
                    struct err *e)
{
    struct import_list l = {.pictures = p, .arena = a, .places = {.arena = a}, .e = e};

    l.came = arena_zalloc(a, p->n * sizeof(*l.came));
    for (uint32_t i = 0; i < p->n; i++)
        (void)lookup_add(&l.places, p->images[i].media, i);
    /* the list may be longer than that of the records, so that duplicates are reported as such */
    if (read_import_list(&l, body, "media", SIZE_MAX, read_picture) != 0 || check_all_came(&l) != 0)
        return -1;
    if (read_import_list(&l, body, "media_urls", MEDIA_PINS_MAX, read_url) != 0)
        return -1;
    helpers_step();
    return p->stored ? media_store_settle(p->store, p->session_id, e) : 0;
}
