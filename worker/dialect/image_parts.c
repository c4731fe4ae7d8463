/*
 * Each image has two steps. While content is read, it becomes {"given": the client's value, "at":
 * its path}, because only the end of a parse knows the whole request. Then image_parts_normalise
 * makes the normalised part:
 *
 *   find_text    finds the base64 or the URL in the dialect's form; rejects file ids
 *   find_bytes   takes bytes that were lifted out of the body, or decodes base64, up to the limit
 *   make_image   header -> format and size, family -> grid and tokens, bytes -> SHA-256
 *
 * Images by http(s) URL stay pending if fetching is enabled. image_parts_fetch gets their bytes
 * from an image_source and continues with make_image.
 *
 * In messages with images, adjacent texts are joined afterwards: clients split them differently,
 * and equal messages must have equal parts.
 */
#include "worker/dialect/image_parts.h"

#include <stdio.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/base64.h"
#include "common/codec/json_build.h"
#include "common/codec/sha256.h"
#include "common/net/web_url.h"
#include "worker/dialect/image_lifts.h"
#include "worker/text/image/image_header.h"
#include "worker/text/image/vision.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/request_limits.h"

bool image_parts_type(struct str type)
{
    return str_eq_c(type, "image_url") || str_eq_c(type, "input_image") || str_eq_c(type, "image");
}

struct json image_parts_wait(struct arena *a, const struct json *given, const char *at)
{
    struct json part = json_empty(JSON_OBJECT);

    json_put(a, &part, "given", *given);
    json_put(a, &part, "at", json_make_string(arena_str(a, str_cstr(at))));
    return part;
}

/* --- reading the client's image --- */

struct image_settling {
    struct arena *a;
    const struct image_rules *rules;
    const struct image_lifts *lifts;   /* may be NULL */
    const struct image_source *source; /* NULL: images that must be fetched stay pending */
    struct chat_request *req;
    uint32_t from;  /* index of the first message to process; the earlier ones have no images */
    const char *at; /* path of the current image, for errors */
    bool by_url;    /* the current image is a URL that must be fetched */
    struct err *e;
};

static int bad_image(const struct image_settling *s, const char *why)
{
    (void)err_field(s->e, s->at, "Could not process image: %s (%s)", why, s->at);
    s->e->kind = ERR_INVALID_IMAGE;
    return -1;
}

static int refuse_url(const struct image_settling *s, struct str url)
{
    size_t scheme = str_find(url, STR(":"), 0);

    return err_field(s->e, s->at,
                     "%s is an image by '%.*s': only base64 in the request (data:image/...;base64,"
                     "...) is taken%s",
                     s->at, (int)MIN_OF(scheme == SIZE_MAX ? url.len : scheme + 1, 40), url.p,
                     s->rules->fetches ? ", and http(s)" : ", nothing is fetched");
}

static bool is_fetched(const struct image_settling *s, struct str url)
{
    return s->rules->fetches && (str_eq_nocase(str_sub(url, 0, 7), STR("http://")) ||
                                 str_eq_nocase(str_sub(url, 0, 8), STR("https://")));
}

/* Sets *ret to the base64 of a data URL, or to a URL that must be fetched (sets s->by_url). */
static int of_url(struct image_settling *s, struct str url, struct str *ret)
{
    size_t comma = str_find(url, STR(","), 0);
    struct str head = str_sub(url, 0, comma == SIZE_MAX ? url.len : comma);

    if (is_fetched(s, url)) {
        s->by_url = true;
        *ret = url;
        return 0;
    }
    if (!str_eq_nocase(str_sub(url, 0, 5), STR("data:")))
        return refuse_url(s, url);
    if (comma == SIZE_MAX || head.len < 7 ||
        !str_eq_nocase(str_sub(head, head.len - 7, 7), STR(";base64")))
        return bad_image(s, "the data URL is not base64");
    *ret = str_sub(url, comma + 1, url.len);
    return 0;
}

/* Finds the image's text in any dialect's form: {image_url: URL | {url: URL}} or {source: {type:
 * base64 | url, data | url}}. */
static int find_text(struct image_settling *s, const struct json *given, struct str *ret)
{
    const struct json *source = json_get(given, "source");
    const struct json *url = json_get(given, "image_url");
    struct str kind = json_string(json_get(source, "type"));

    s->by_url = false;
    if (str_eq_c(kind, "base64") && json_is(json_get(source, "data"), JSON_STRING)) {
        *ret = json_string(json_get(source, "data"));
        return 0;
    }
    if (str_eq_c(kind, "url"))
        url = json_get(source, "url");
    if (json_is(url, JSON_OBJECT))
        url = json_get(url, "url");
    if (json_is(url, JSON_STRING))
        return of_url(s, json_string(url), ret);
    if (str_eq_c(kind, "file") || json_string(json_get(given, "file_id")).p)
        return err_field(s->e, s->at, "%s is an image by file id: files are not stored here",
                         s->at);
    return err_field(s->e, s->at,
                     "%s is an image without its data: a data URL or base64 must be "
                     "there",
                     s->at);
}

/* Returns the text without the white space that some clients insert. */
static struct str without_blanks(struct arena *a, struct str text)
{
    static const char blanks[4] = {' ', '\t', '\r', '\n'};
    bool any = false;
    size_t n = 0;
    char *out;

    for (size_t i = 0; i < sizeof(blanks) && !any; i++)
        any = text.len > 0 && memchr(text.p, blanks[i], text.len);
    if (!any)
        return text;
    out = arena_alloc(a, text.len);
    for (size_t i = 0; i < text.len; i++)
        if (!memchr(blanks, text.p[i], sizeof(blanks)))
            out[n++] = text.p[i];
    return str_of(out, n);
}

static int fail_too_large(const struct image_settling *s)
{
    (void)err_field(s->e, s->at, "%s is an image of more than %llu bytes", s->at,
                    (unsigned long long)s->rules->image_bytes);
    s->e->kind = ERR_BODY_TOO_LARGE;
    return -1;
}

static int decode_base64_image(const struct image_settling *s, struct str text,
                               struct request_image *ret)
{
    struct str base64 = without_blanks(s->a, text);
    char *bytes;
    size_t n;

    if (base64_room(base64.len) > s->rules->image_bytes + 2)
        return fail_too_large(s);
    bytes = arena_alloc_alone(s->a, base64_room(base64.len) + 1);
    if (base64_decode(base64, bytes, &n) != 0)
        return bad_image(s, "its data is not base64");
    if (n > s->rules->image_bytes)
        return fail_too_large(s);
    ret->bytes = str_of(bytes, n);
    return 0;
}

/* Sets *ret to the image of a text: lifted earlier, or decoded now. */
static int find_bytes(const struct image_settling *s, struct str text, struct request_image *ret)
{
    struct image_lift *lift = image_lifts_find(s->lifts, text);

    if (!lift)
        return decode_base64_image(s, text, ret);
    lift->used = true;
    *ret = lift->image;
    return 0;
}

/* --- making the normalised part --- */

static void keep_image(const struct image_settling *s, const struct request_image *image)
{
    struct chat_request *req = s->req;
    struct request_image *all;

    if ((req->n_images & (req->n_images - 1)) == 0) { /* the capacity is a power of two */
        all = arena_calloc(s->a, req->n_images ? (size_t)req->n_images * 2 : 1, sizeof(*all));
        for (uint32_t i = 0; i < req->n_images; i++)
            all[i] = req->images[i];
        req->images = all;
    }
    req->images[req->n_images++] = *image;
}

static int make_image(const struct image_settling *s, struct request_image *image, struct json *ret)
{
    struct image_header header;
    struct vision_grid grid;
    struct image_part part;
    const char *why = image_header_read(image->bytes, &header);

    if (!why)
        why = vision_grid(s->rules->vision, header.width, header.height, &grid);
    if (why)
        return bad_image(s, why);
    if (!image->media.p) {
        char *hex = arena_alloc(s->a, SHA256_HEX_LEN + 1);

        sha256_hex(image->bytes, hex);
        image->media = str_cstr(hex);
    }
    part = (struct image_part){
        .media = image->media,
        .format = str_cstr(image_format_name(header.format)),
        .width = header.width,
        .height = header.height,
        .orientation = header.orientation,
        .tokens = grid.tokens,
        .grid = {1, grid.height, grid.width},
        .bytes = image->bytes.len,
    };
    *ret = image_part_make(s->a, &part);
    return 0;
}

static int check_memory(const struct image_settling *s)
{
    return arena_over(s->a) ? err_set(s->e, ERR_BODY_TOO_LARGE, "the images are too large") : 0;
}

static int normalise_image(struct image_settling *s, struct json *part)
{
    const struct json *given = json_get(part, "given");
    struct str type = json_string(json_get(given, "type"));
    struct request_image image = {0};
    struct str text = {0};
    char field[FIELD_PATH_MAX];

    if (!s->rules || !s->rules->vision)
        return err_field(s->e, path_at(field, "%s.type", s->at),
                         "%s.type is '%.*s', but the model takes text only", s->at,
                         (int)MIN_OF(type.len, 60), type.p);
    if (s->req->n_shown++ >= s->rules->images)
        return err_field(s->e, s->at, "%s: there are more than %u images in the request", s->at,
                         s->rules->images);
    if (find_text(s, given, &text))
        return -1;
    if (s->by_url) {
        s->req->n_awaited++;
        return 0;
    }
    if (find_bytes(s, text, &image) || make_image(s, &image, part))
        return -1;
    keep_image(s, &image);
    return check_memory(s);
}

/* --- by URL --- */

/* Returns an image that this request already has from that URL, or NULL. */
static const struct request_image *find_fetched(const struct image_settling *s, struct str url)
{
    for (uint32_t i = 0; i < s->req->n_images; i++)
        if (s->req->images[i].url.p && str_eq(s->req->images[i].url, url))
            return &s->req->images[i];
    return NULL;
}

/* Sets the error for an image that could not be fetched, in the usual form of image errors. */
static int cannot_fetch(const struct image_settling *s, struct str url)
{
    char why[sizeof(s->e->text)];
    struct buf shown = {0};

    (void)snprintf(why, sizeof(why), "%s", s->e->text);
    if (s->e->kind == ERR_BODY_TOO_LARGE)
        return fail_too_large(s);
    web_url_show(url, &shown);
    (void)err_field(s->e, s->at, "Could not process image: '%.*s' was not fetched: %s (%s)",
                    (int)shown.len, shown.p, why, s->at);
    buf_done(&shown);
    s->e->kind = ERR_INVALID_IMAGE;
    return -1;
}

/* Uses the session's image from that URL, with the tokens and the grid of this model. */
static int use_pinned(const struct image_settling *s, const struct json *known, struct json *ret)
{
    struct image_part part;
    struct vision_grid grid;
    const char *why;

    image_part_read(known, &part);
    why = vision_grid(s->rules->vision, part.width, part.height, &grid);
    if (why)
        return bad_image(s, why);
    part.tokens = grid.tokens;
    part.grid[0] = 1;
    part.grid[1] = grid.height;
    part.grid[2] = grid.width;
    *ret = image_part_make(s->a, &part);
    return 0;
}

static int fetch_image(struct image_settling *s, struct json *part)
{
    const struct request_image *same;
    const struct json *known = NULL;
    struct request_image image = {0};
    struct str url = {0};
    struct json whole;
    int rc;

    if (find_text(s, json_get(part, "given"), &url))
        return -1;
    same = find_fetched(s, url);
    if (same) {
        image = *same;
        return make_image(s, &image, part);
    }
    rc = s->source->get(s->source->ctx, s->a, url, &image, &known, s->e);
    if (rc)
        return rc == IMAGE_AT_FAULT ? cannot_fetch(s, url) : -1;
    if (known)
        return use_pinned(s, known, part);
    if (make_image(s, &image, part))
        return -1;
    image.url = url;
    whole = json_text_of(s->a, part);
    image.part = json_string(&whole);
    if (s->source->keep(s->source->ctx, s->a, &image, &known, s->e))
        return -1;
    if (known)
        return use_pinned(s, known, part);
    if (image.bytes.p)
        keep_image(s, &image);
    return check_memory(s);
}

/* Joins adjacent texts and drops empty ones, so that equal messages are equal however a client
 * splits its text. */
static void join_texts(struct arena *a, struct json *content)
{
    struct json list = json_empty(JSON_ARRAY);
    struct grown text = {0};

    for (uint32_t k = 0; k <= content->n; k++) {
        const struct json *part = k < content->n ? &content->items[k] : NULL;

        if (part && !image_part_is(part)) {
            grown_add(a, &text, json_string(json_get(part, "text")));
            continue;
        }
        if (text.len) {
            struct json joined = json_empty(JSON_OBJECT);

            json_put(a, &joined, "type", json_make_string(STR("text")));
            json_put(a, &joined, "text", json_make_string(grown_str(&text)));
            json_push(a, &list, joined);
            text = (struct grown){0};
        }
        if (part)
            json_push(a, &list, *part);
    }
    *content = list;
}

/* Normalises the images of one message's content. Joins its texts when no image of it is
 * pending. */
static int normalise_content(struct image_settling *s, struct json *content)
{
    uint32_t awaited = s->req->n_awaited;
    bool any = false;

    for (uint32_t k = 0; k < content->n; k++) {
        struct json *part = &content->items[k];

        if (!json_get(part, "given"))
            continue;
        any = true;
        s->at = arena_cstr(s->a, json_string(json_get(part, "at")));
        if (s->source ? fetch_image(s, part) : normalise_image(s, part))
            return -1;
    }
    if (any && s->req->n_awaited == awaited)
        join_texts(s->a, content);
    return 0;
}

static struct json *content_of(struct json *message)
{
    for (uint32_t i = 0; message->kind == JSON_OBJECT && i < message->n; i++)
        if (str_eq_c(json_string(&message->members[i].key), "content"))
            return &message->members[i].value;
    return NULL;
}

static int normalise_all(struct image_settling *s)
{
    const struct json *all = s->req->chat->messages;

    for (uint32_t i = s->from; all && i < all->n; i++) {
        struct json *content = content_of(&all->items[i]);

        if (content && content->kind == JSON_ARRAY && normalise_content(s, content))
            return -1;
    }
    return 0;
}

int image_parts_normalise(struct arena *a, const struct dialect_past *past,
                          struct chat_request *req, struct err *e)
{
    struct image_settling s = {.a = a, .req = req, .from = req->n_plain, .e = e};

    if (past) {
        s.rules = past->images;
        s.lifts = past->lifts;
    }
    return normalise_all(&s);
}

int image_parts_fetch(struct arena *a, const struct image_rules *rules,
                      const struct image_source *source, struct chat_request *req, struct err *e)
{
    struct image_settling s = {.a = a, .rules = rules, .source = source, .req = req, .e = e};

    req->n_awaited = 0;
    return normalise_all(&s);
}
