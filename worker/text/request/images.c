/*
 * Writes and reads the part in one fixed set of members, and walks messages for such parts. A
 * missing or invalid number reads as 0: parts were made by this gateway, and an older one did not
 * write all members. Sums are computed each time, because a conversation has few pictures.
 */
#include "worker/text/request/images.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/fields.h"
#include "common/codec/json_build.h"
#include "common/codec/sha256.h"

#define BYTES_MAX ((int64_t)1 << 53) /* largest integer that every reader of JSON can represent */

static void put_image_number(struct arena *a, struct json *o, const char *key, uint64_t v)
{
    json_put(a, o, key, json_make_i64(a, (int64_t)v));
}

struct json image_part_make(struct arena *a, const struct image_part *p)
{
    struct json part = json_empty(JSON_OBJECT), grid = json_empty(JSON_ARRAY);

    for (size_t i = 0; i < ARRAY_LEN(p->grid); i++)
        json_push(a, &grid, json_make_i64(a, p->grid[i]));
    json_put(a, &part, "type", json_make_string(STR("image")));
    json_put(a, &part, "media", json_make_string(p->media));
    json_put(a, &part, "format", json_make_string(p->format));
    put_image_number(a, &part, "bytes", p->bytes);
    put_image_number(a, &part, "width", p->width);
    put_image_number(a, &part, "height", p->height);
    put_image_number(a, &part, "orientation", p->orientation);
    json_put(a, &part, "grid", grid);
    put_image_number(a, &part, "tokens", p->tokens);
    return part;
}

bool image_part_is(const struct json *part)
{
    return json_is(part, JSON_OBJECT) && str_eq_c(json_string(json_get(part, "type")), "image") &&
           json_is(json_get(part, "media"), JSON_STRING);
}

/* Checks a number that must be present. */
static int check_number(struct field_reader *f, const char *name, int64_t max)
{
    int64_t v = -1;

    if (fields_integer(f, name, 0, max, &v) != 0)
        return -1;
    return v >= 0 ? 0
                  : fields_fault(f, name, "is required: an integer from 0 to %lld", (long long)max);
}

static int check_grid(struct field_reader *f)
{
    const struct json *grid = json_get(f->body, "grid");

    if (!json_is(grid, JSON_ARRAY) || grid->n != 3)
        return field_bad("grid", grid, "a list of 3 integers", f->e);
    for (uint32_t i = 0; i < grid->n; i++) {
        int64_t v = -1;

        if (json_to_i64(&grid->items[i], &v) != 0 || v < 0 || v > UINT32_MAX)
            return field_bad("grid", &grid->items[i], "a list of integers from 0 to 4294967295",
                             f->e);
    }
    return 0;
}

int image_part_check(const struct json *part, struct err *e)
{
    static const char *const names[] = {"type",   "media",       "format", "bytes", "width",
                                        "height", "orientation", "grid",   "tokens"};
    static const char *const sizes[] = {"width", "height", "orientation", "tokens"};
    struct field_reader f = {.body = part, .e = e};
    const struct json *media = json_get(part, "media");

    if (fields_known(&f, "image", names, ARRAY_LEN(names)) != 0)
        return -1;
    if (!json_is(media, JSON_STRING) || !sha256_is_hex(json_string(media)))
        return field_bad("media", media, "a SHA-256, 64 hexadecimal digits", e);
    if (!json_is(json_get(part, "format"), JSON_STRING))
        return field_bad("format", json_get(part, "format"), "a text", e);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if (check_number(&f, sizes[i], UINT32_MAX) != 0)
            return -1;
    return check_number(&f, "bytes", BYTES_MAX) != 0 ? -1 : check_grid(&f);
}

static uint64_t read_whole_number(const struct json *v)
{
    int64_t n = 0;

    return json_to_i64(v, &n) == 0 && n > 0 ? (uint64_t)n : 0;
}

void image_part_read(const struct json *part, struct image_part *ret)
{
    const struct json *grid = json_get(part, "grid");

    *ret = (struct image_part){
        .media = json_string(json_get(part, "media")),
        .format = json_string(json_get(part, "format")),
        .bytes = read_whole_number(json_get(part, "bytes")),
        .width = (uint32_t)read_whole_number(json_get(part, "width")),
        .height = (uint32_t)read_whole_number(json_get(part, "height")),
        .orientation = (uint32_t)read_whole_number(json_get(part, "orientation")),
        .tokens = (uint32_t)read_whole_number(json_get(part, "tokens")),
    };
    for (size_t i = 0; i < ARRAY_LEN(ret->grid); i++)
        ret->grid[i] = (uint32_t)read_whole_number(json_at(grid, i));
}

bool image_part_equal(const struct image_part *a, const struct image_part *b)
{
    return str_eq(a->media, b->media) && str_eq(a->format, b->format) && a->bytes == b->bytes &&
           a->width == b->width && a->height == b->height && a->orientation == b->orientation &&
           a->tokens == b->tokens && memcmp(a->grid, b->grid, sizeof(a->grid)) == 0;
}

void images_each(const struct json *messages, uint32_t from,
                 void (*each)(void *ctx, const struct json *part), void *ctx)
{
    for (uint32_t i = from; messages && i < messages->n; i++) {
        const struct json *content = json_get(&messages->items[i], "content");

        for (uint32_t k = 0; json_is(content, JSON_ARRAY) && k < content->n; k++)
            if (image_part_is(&content->items[k]))
                each(ctx, &content->items[k]);
    }
}

static void add_up(void *ctx, const struct json *part)
{
    struct images_sum *s = ctx;
    uint64_t tokens = read_whole_number(json_get(part, "tokens"));

    s->n++;
    s->extra += tokens ? tokens - 1 : 0;
}

struct images_sum images_sum(const struct json *messages, uint32_t from)
{
    struct images_sum s = {0};

    images_each(messages, from, add_up, &s);
    return s;
}
