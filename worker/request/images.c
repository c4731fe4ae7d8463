/*
 * Writes and reads the part in one fixed set of members, and walks messages for such parts. A
 * number that is missing or no number reads as 0; the parts were made by this gateway, so that is
 * what an older one did not write. Sums are made anew each time: a conversation has few pictures,
 * and nothing could go stale.
 */
#include "worker/request/images.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/json_build.h"

static void put_number(struct arena *a, struct json *o, const char *key, uint64_t v)
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
    put_number(a, &part, "bytes", p->bytes);
    put_number(a, &part, "width", p->width);
    put_number(a, &part, "height", p->height);
    put_number(a, &part, "orientation", p->orientation);
    json_put(a, &part, "grid", grid);
    put_number(a, &part, "tokens", p->tokens);
    return part;
}

bool image_part_is(const struct json *part)
{
    return json_is(part, JSON_OBJECT) && str_eq_c(json_string(json_get(part, "type")), "image") &&
           json_is(json_get(part, "media"), JSON_STRING);
}

static uint64_t number_of(const struct json *v)
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
        .bytes = number_of(json_get(part, "bytes")),
        .width = (uint32_t)number_of(json_get(part, "width")),
        .height = (uint32_t)number_of(json_get(part, "height")),
        .orientation = (uint32_t)number_of(json_get(part, "orientation")),
        .tokens = (uint32_t)number_of(json_get(part, "tokens")),
    };
    for (size_t i = 0; i < ARRAY_LEN(ret->grid); i++)
        ret->grid[i] = (uint32_t)number_of(json_at(grid, i));
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
    uint64_t tokens = number_of(json_get(part, "tokens"));

    s->n++;
    s->extra += tokens ? tokens - 1 : 0;
}

struct images_sum images_sum(const struct json *messages)
{
    struct images_sum s = {0};

    images_each(messages, 0, add_up, &s);
    return s;
}
