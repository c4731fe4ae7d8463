/*
 * Three steps. The family: a row by the processor's name in preprocessor_config.json, with default
 * numbers for a file without them, and the tokens that represent pictures. The template: a message
 * with two pictures is rendered, and must show exactly two placeholders. Otherwise the model
 * accepts no pictures.
 *
 * Texts that spell a token: a guard of digits is inserted before the token's last byte, so the
 * rendered text does not contain the token. Encoding removes guards and marks those positions as
 * plain text for the encoder:
 *
 *   "<|image_pad|>"  ->  "<|image_pad|4711...>"  ->  rendered  ->  ids of the letters < | i m ...
 */
#include "worker/text/model/pictures.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/vec.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/images.h"

/* --- the family --- */

struct vision_row {
    const char *processor; /* beginning of image_processor_type */
    enum vision_family family;
    uint32_t patch;
    uint64_t min_pixels, max_pixels; /* defaults for a file without these numbers */
    /* the picture's token first, then others that no answer may contain */
    const char *tokens[4];
};

static const struct vision_row rows[] = {
    {"Qwen2VLImageProcessor", VISION_QWEN, 14, 3136, 1003520, {"<|image_pad|>", "<|video_pad|>"}},
    {"Glm4vImageProcessor", VISION_GLM, 14, 12544, 11760000, {"<|image|>", "<|video|>"}},
};

/* Kimi's numbers are in a separate object and have names of their own. */
static const struct vision_row kimi = {
    NULL, VISION_KIMI, 14, 0, 0, {"<|media_pad|>", "<|kimi_k25_video_placeholder|>"}};

/* Reads numbers of preprocessor_config.json. A wrong one is remembered, because a default in its
 * place would count other tokens than the engine does. */
struct picture_numbers {
    const struct json *from;
    const char *bad; /* name of a wrong number; NULL: there is none */
    uint64_t bad_max;
};

static uint64_t read_bound(struct picture_numbers *r, const char *name, const struct json *v,
                           uint64_t missing, uint64_t max)
{
    int64_t n;

    if (json_is_null(v))
        return missing;
    if (json_to_i64(v, &n) == 0 && n >= (missing > 0) && (uint64_t)n <= max)
        return (uint64_t)n;
    r->bad = name;
    r->bad_max = max;
    return missing;
}

static uint32_t number_of(struct picture_numbers *r, const char *name, uint64_t missing,
                          uint64_t max)
{
    return (uint32_t)read_bound(r, name, json_get(r->from, name), missing, max);
}

/* Reads min_pixels, or the same bound under the name in newer files. */
static uint64_t bound_of(struct picture_numbers *r, const char *name, const char *edge,
                         uint64_t missing)
{
    const struct json *v = json_get(r->from, name);

    return json_is_null(v)
               ? read_bound(r, edge, json_get(json_get(r->from, "size"), edge), missing, 1u << 30)
               : read_bound(r, name, v, missing, 1u << 30);
}

static void find_picture_tokens(struct model *m, const struct vision_row *row)
{
    struct vision *v = &m->vision;

    for (size_t i = 0; i < ARRAY_LEN(row->tokens) && row->tokens[i]; i++) {
        int32_t id = tokenizer_id(m->tokenizer, str_cstr(row->tokens[i]));

        if (id < 0 || !tokenizer_is_added(m->tokenizer, id))
            continue;
        if (i == 0)
            v->pad = id;
        m->media_texts[v->n_banned] = str_cstr(row->tokens[i]);
        v->banned[v->n_banned++] = id;
    }
}

static const struct vision_row *row_of(const struct json *p)
{
    struct str type = json_string(json_get(p, "image_processor_type"));

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_starts(type, str_cstr(rows[i].processor)))
            return &rows[i];
    return json_is(json_get(p, "media_proc_cfg"), JSON_OBJECT) ? &kimi : NULL;
}

static struct vision kimi_numbers(struct picture_numbers *r)
{
    const struct json *merge = json_get(r->from, "merge_kernel_size");

    if (json_is(merge, JSON_ARRAY)) /* the list has both sides, which are equal */
        merge = json_at(merge, 0);
    return (struct vision){
        .patch = number_of(r, "patch_size", kimi.patch, 1024),
        .merge = (uint32_t)read_bound(r, "merge_kernel_size", merge, 2, 64),
        .max_patches = number_of(r, "in_patch_limit", 16384, 1u << 30),
        .side_patches = number_of(r, "patch_limit_on_one_side", 512, 1u << 16),
        .fixed_tokens = number_of(r, "fixed_output_tokens", 0, 1u << 20),
    };
}

static struct vision read_vision_numbers(struct picture_numbers *r, const struct vision_row *row)
{
    struct vision ret = {
        .patch = number_of(r, "patch_size", row->patch, 1024),
        .merge = number_of(r, "merge_size", 2, 64),
        .temporal = number_of(r, "temporal_patch_size", 2, 64),
        .max_pixels = bound_of(r, "max_pixels", "longest_edge", row->max_pixels),
        .min_pixels = bound_of(r, "min_pixels", "shortest_edge", row->min_pixels),
    };

    if (!r->bad && ret.min_pixels > ret.max_pixels)
        *r = (struct picture_numbers){r->from, "min_pixels", ret.max_pixels};
    return ret;
}

void pictures_load(struct model *m, const struct folder *f)
{
    const struct json *p = f->preprocessor;
    struct str type = json_string(json_get(p, "image_processor_type"));
    const struct vision_row *row = row_of(p);
    struct vision *v = &m->vision;
    struct picture_numbers r = {row == &kimi ? json_get(p, "media_proc_cfg") : p, NULL, 0};

    if (!row) {
        if (type.p)
            buf_printf(&m->notes, "images are not supported: their processor %.*s is not known\n",
                       (int)MIN_OF(type.len, 80), type.p);
        return;
    }
    *v = row == &kimi ? kimi_numbers(&r) : read_vision_numbers(&r, row);
    v->family = row->family;
    v->pad = -1;
    find_picture_tokens(m, row);
    if (r.bad)
        buf_printf(&m->notes,
                   "images are not supported: preprocessor_config.json: %s is no integer from 1 to "
                   "%llu\n",
                   r.bad, (unsigned long long)r.bad_max);
    else if (v->pad < 0)
        buf_printf(&m->notes, "images are not supported: the tokenizer has no %s\n",
                   row->tokens[0]);
    else
        m->info.vision = v;
}

/* --- the template --- */

size_t pictures_shown(const struct model *m, struct str text)
{
    struct str what = m->media_texts[0];
    size_t n = 0;

    for (size_t at = str_find(text, what, 0); at != SIZE_MAX;
         at = str_find(text, what, at + what.len))
        n++;
    return n;
}

/* Makes a user's message with two pictures and a text between them. */
static struct json sample_message(struct arena *a)
{
    struct json parts[3], list = {.kind = JSON_ARRAY, .n = 3, .items = parts},
                          m = make_object(a, 2);

    parts[0] = parts[2] = make_text(a, "type", "image", "media", "x");
    parts[1] = make_text(a, "type", "text", "text", "RGPART");
    object_put(&m, "role", json_make_string(STR("user")));
    list.items = arena_alloc(a, sizeof(parts));
    memcpy(list.items, parts, sizeof(parts));
    object_put(&m, "content", list);
    return m;
}

static void draw_guard(struct model *m)
{
    uint64_t seed = str_seed();

    for (size_t i = 0; i < MODEL_GUARD_LEN; i++, seed = str_hash(str_of(m->guard, i), seed))
        m->guard[i] = (char)('0' + seed % 10);
}

void pictures_probe(struct model *m, struct model_scratch *s)
{
    struct json messages[2];
    struct rendering r = {.messages = messages};

    if (!m->info.vision)
        return;
    draw_guard(m);
    arena_reset(&s->arena);
    if (m->boundaries.needs_system)
        messages[r.n++] = make_text(&s->arena, "role", "system", "content", "x");
    messages[r.n++] = sample_message(&s->arena);
    buf_clear(&s->a);
    if (model_text(m, &s->arena, &r, &s->a, NULL) == 0 && pictures_shown(m, buf_str(&s->a)) == 2 &&
        str_find(buf_str(&s->a), STR("RGPART"), 0) != SIZE_MAX) {
        buf_printf(&m->notes, "images: a user's picture becomes %.*s, of %ux%u pixels a token\n",
                   (int)m->media_texts[0].len, m->media_texts[0].p,
                   m->vision.patch * m->vision.merge, m->vision.patch * m->vision.merge);
        return;
    }
    m->info.vision = NULL;
    buf_printf(&m->notes, "images are not supported: the template writes no %.*s for one\n",
               (int)m->media_texts[0].len, m->media_texts[0].p);
}

struct json pictures_bare(struct arena *a, const struct json *content)
{
    struct json list = *content;
    uint32_t i = 0;

    while (i < content->n && !image_part_is(&content->items[i]))
        i++;
    if (i == content->n)
        return list;
    list.items = arena_alloc(a, content->n * sizeof(*list.items));
    for (i = 0; i < content->n; i++) {
        list.items[i] = content->items[i];
        if (!image_part_is(&content->items[i]))
            continue;
        list.items[i] = make_object(a, 1);
        object_put(&list.items[i], "type", json_make_string(STR("image")));
    }
    return list;
}

/* --- texts that spell a token --- */

/* Finds the first of the tokens' texts at or after `from`; SIZE_MAX: there is none. */
static size_t next_literal(const struct model *m, struct str text, size_t from, size_t *ret_len)
{
    size_t best = SIZE_MAX;

    for (uint32_t i = 0; i < m->vision.n_banned; i++) {
        size_t at = str_find(text, m->media_texts[i], from);

        if (at < best) {
            best = at;
            *ret_len = m->media_texts[i].len;
        }
    }
    return best;
}

static bool spells_token(const struct model *m, const struct json *v)
{
    size_t len;

    switch ((enum json_kind)v->kind) {
    case JSON_STRING:
        return v->n > 2 && next_literal(m, json_string(v), 0, &len) != SIZE_MAX;
    case JSON_ARRAY:
        for (uint32_t i = 0; i < v->n; i++)
            if (spells_token(m, &v->items[i]))
                return true;
        return false;
    case JSON_OBJECT:
        for (uint32_t i = 0; i < v->n; i++)
            if (spells_token(m, &v->members[i].key) || spells_token(m, &v->members[i].value))
                return true;
        return false;
    default:
        return false;
    }
}

/* Inserts the guard before the last byte of each token's text. */
static struct json guard_text(const struct model *m, struct arena *a, struct str text)
{
    struct buf out = {0};
    size_t from = 0, at, len = 0;
    struct json ret;

    while ((at = next_literal(m, text, from, &len)) != SIZE_MAX) {
        buf_add_str(&out, str_sub(text, from, at + len - 1 - from));
        buf_add(&out, m->guard, MODEL_GUARD_LEN);
        from = at + len - 1;
    }
    buf_add_str(&out, str_sub(text, from, text.len));
    ret = json_make_string(arena_str(a, buf_str(&out)));
    buf_done(&out);
    return ret;
}

static struct json guard_copy(const struct model *m, struct arena *a, const struct json *v)
{
    struct json ret = *v;

    if (v->kind == JSON_STRING)
        return guard_text(m, a, json_string(v));
    if (v->kind == JSON_ARRAY) {
        ret.items = arena_alloc(a, v->n * sizeof(*ret.items));
        for (uint32_t i = 0; i < v->n; i++)
            ret.items[i] = guard_copy(m, a, &v->items[i]);
    } else if (v->kind == JSON_OBJECT) {
        ret.members = arena_alloc(a, v->n * sizeof(*ret.members));
        for (uint32_t i = 0; i < v->n; i++)
            ret.members[i] = (struct json_member){guard_copy(m, a, &v->members[i].key),
                                                  guard_copy(m, a, &v->members[i].value)};
    }
    return ret;
}

struct json pictures_guard(const struct model *m, struct arena *a, const struct json *v)
{
    return m->info.vision && spells_token(m, v) ? guard_copy(m, a, v) : *v;
}

bool pictures_guarded(const struct model *m, struct str text)
{
    return m->info.vision && str_find(text, str_of(m->guard, MODEL_GUARD_LEN), 0) != SIZE_MAX;
}

struct guard_places {
    size_t *at;
    size_t n, cap;
};

/* Finds the start of the token's text that ends after `end` bytes of `bare`. */
static size_t begin_of(const struct model *m, struct str bare)
{
    for (uint32_t i = 0; i < m->vision.n_banned; i++) {
        struct str head = str_sub(m->media_texts[i], 0, m->media_texts[i].len - 1);

        if (str_ends(bare, head))
            return bare.len - head.len;
    }
    return bare.len;
}

int pictures_encode(struct model_scratch *s, struct str text, struct token_vec *out, struct err *e)
{
    const struct model *m = s->model;
    struct str guard = str_of(m->guard, MODEL_GUARD_LEN);
    struct buf bare = {0};
    struct guard_places places = {0};
    size_t from = 0, at;
    int rc;

    if (!pictures_guarded(m, text))
        return encoder_encode(s->encoder, text, false, out, e);
    while ((at = str_find(text, guard, from)) != SIZE_MAX) {
        buf_add_str(&bare, str_sub(text, from, at - from));
        *vec_push(&places) = begin_of(m, buf_str(&bare));
        from = at + guard.len;
    }
    buf_add_str(&bare, str_sub(text, from, text.len));
    rc = encoder_encode_plain(s->encoder, buf_str(&bare),
                              &(struct plain_places){places.at, places.n}, out, e);
    vec_done(&places);
    buf_done(&bare);
    return rc;
}

int model_vision_sample(const struct model *m, struct token_vec *ids)
{
    struct model_scratch *s = model_scratch_new(m);
    struct arena a = {0};
    struct json message = sample_message(&a);
    struct json messages = {.kind = JSON_ARRAY, .n = 1, .items = &message};
    struct chat chat = {.messages = &messages};
    int rc = model_prompt(m, s, &chat, ids, NULL);

    if (rc == 0)
        rc = encoder_encode(s->encoder, STR("D"), false, ids, NULL);
    if (rc == 0)
        rc = encoder_encode(s->encoder, STR("escribe"), false, ids, NULL);
    arena_done(&a);
    model_scratch_free(s);
    return rc;
}
