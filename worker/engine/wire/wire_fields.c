/*
 * A small machine over json_scan. `path` is the position of the present value as text: a key
 * replaces the text after its container's level. At each value choose_mode() compares it with the
 * table's paths:
 *
 *   the same path, a scalar   MODE_VALUE   the scalar is reported
 *   the same path, bulk       MODE_BULK    the scanner writes directly into the owner's array
 *   leads to a path           MODE_VALUE   the container is entered
 *   neither                   MODE_SKIP    skipped without being parsed
 *
 * So the cost of a document is that of its fields, and long arrays of numbers need no callback for
 * each.
 */
#include "worker/engine/wire/wire_fields.h"

enum { TEXT_MAX = 64 * 1024 };

enum mode {
    MODE_VALUE, /* a value follows, whose position was compared */
    MODE_SKIP,
    MODE_BULK,
    MODE_NEXT, /* a key, an item or an end follows */
};

void fields_init(struct fields *f, const struct field *table, size_t n,
                 const struct field_sink *sink, void *ctx)
{
    *f = (struct fields){.table = table, .n = n, .sink = sink, .ctx = ctx, .mode = MODE_VALUE};
    json_scan_init(&f->scan, TEXT_MAX);
}

void fields_done(struct fields *f)
{
    json_scan_done(&f->scan);
    buf_done(&f->path);
}

void fields_reset(struct fields *f)
{
    json_scan_reset(&f->scan);
    buf_clear(&f->path);
    f->depth = 0;
    f->value = NULL;
    f->mode = MODE_VALUE;
}

/* Compares a table path with the position: 1 the same, 0 the position leads to it, -1 neither. Most
 * do not match, so the ends are compared first. */
static int compare_path(const struct field *f, struct str place)
{
    bool any = f->path[f->len - 1] == '*';
    size_t known = any ? f->len - 1u : f->len;
    char next;

    if (any && place.len >= known)
        return memcmp(f->path, place.p, known) == 0 ? 1 : -1;
    if (known < place.len)
        return -1;
    if (place.len == 0)
        return 0;
    next = f->path[place.len];
    if ((next != '\0' && next != '.' && next != '[') ||
        f->path[place.len - 1] != place.p[place.len - 1] ||
        memcmp(f->path, place.p, place.len) != 0)
        return -1;
    return next == '\0';
}

/* Chooses how to handle the value at f->path. A field may be both a scalar and the way to other
 * fields ("finish_reason", "finish_reason.type"). */
static void choose_mode(struct fields *f)
{
    struct str place = buf_str(&f->path);
    bool leads = false;

    f->value = NULL;
    for (size_t i = 0; i < f->n; i++) {
        int same = compare_path(&f->table[i], place);

        if (same == 1)
            f->value = &f->table[i];
        leads = leads || same == 0;
    }
    if (f->value && f->value->type != FIELD_SCALAR && f->value->type != FIELD_MARK) {
        f->mode = MODE_BULK;
        f->target = (struct field_target){0};
        f->sink->target(f->ctx, f->value->id, &f->target);
    } else {
        f->mode = f->value || leads ? MODE_VALUE : MODE_SKIP;
    }
}

static int enter_container(struct fields *f, bool array, struct err *e)
{
    if (f->depth == FIELDS_DEPTH)
        return err_set(e, ERR_INVALID, "JSON: a field nested too deep");
    if (array)
        buf_puts(&f->path, "[]");
    f->level[f->depth] = f->path.len;
    f->array[f->depth++] = array;
    return 0;
}

static void leave_container(struct fields *f)
{
    f->depth--;
    f->path.len = f->depth > 0 ? f->level[f->depth - 1] : 0;
}

static void read_field_key(struct fields *f)
{
    f->path.len = f->level[f->depth - 1];
    if (f->path.len > 0)
        buf_add_c(&f->path, '.');
    f->key_at = f->path.len;
    buf_add_str(&f->path, f->scan.text);
    choose_mode(f);
}

/* Reads a value whose path is in the table, or which contains such a value. */
static int read_field_value(struct fields *f, struct err *e)
{
    int rc = json_scan_next(&f->scan, e);

    if (rc <= 0)
        return rc;
    f->mode = MODE_NEXT;
    if (f->value && f->value->type == FIELD_MARK) {
        f->sink->bulk(f->ctx, f->value->id, 0, f->scan.token == JSON_TOKEN_NULL);
        f->value = NULL;
    }
    if (f->scan.token == JSON_TOKEN_OBJECT || f->scan.token == JSON_TOKEN_ARRAY)
        return enter_container(f, f->scan.token == JSON_TOKEN_ARRAY, e) < 0 ? -1 : 1;
    if (f->value)
        f->sink->scalar(f->ctx, f->value->id, &f->scan,
                        str_sub(buf_str(&f->path), f->key_at, f->path.len));
    return 1;
}

static int read_bulk(struct fields *f, struct err *e)
{
    struct json_scan *s = &f->scan;
    bool null = false;
    int rc;

    if (f->value->type == FIELD_INTS)
        rc = json_scan_ints(s, f->target.from, f->target.ints, e);
    else if (f->value->type == FIELD_FLOATS)
        rc = json_scan_floats(s, f->target.from, f->target.floats, e);
    else if (f->value->type == FIELD_TRIPLES)
        rc = json_scan_triples(s, f->target.from, f->target.floats, f->target.ints, e);
    else if (f->target.window)
        rc = json_scan_base64_window(s, f->target.window, f->target.bytes, &null, e);
    else
        rc = json_scan_base64(s, f->target.max_bytes, f->target.bytes, &null, e);
    if (rc <= 0)
        return rc;
    f->mode = MODE_NEXT;
    if (f->value->type != FIELD_BASE64)
        null = s->token == JSON_TOKEN_NULL;
    f->sink->bulk(f->ctx, f->value->id, s->items, null);
    return 1;
}

static int read_list_item(struct fields *f, struct err *e)
{
    int rc = json_scan_item(&f->scan, e);

    if (rc == 2) {
        leave_container(f);
        return 1;
    }
    if (rc == 1) {
        f->path.len = f->level[f->depth - 1];
        f->key_at = f->path.len;
        choose_mode(f);
    }
    return rc;
}

/* Returns 2 when the document is complete. */
static int read_next_token(struct fields *f, struct err *e)
{
    int rc;

    if (f->depth > 0 && f->array[f->depth - 1])
        return read_list_item(f, e);
    rc = json_scan_next(&f->scan, e);
    if (rc <= 0)
        return rc;
    if (f->scan.token == JSON_TOKEN_END)
        return 2;
    if (f->scan.token == JSON_TOKEN_KEY)
        read_field_key(f);
    else
        leave_container(f);
    return 1;
}

static int skip_field(struct fields *f, struct err *e)
{
    int rc = json_scan_skip(&f->scan, e);

    if (rc > 0)
        f->mode = MODE_NEXT;
    return rc;
}

int fields_feed(struct fields *f, struct str piece, struct err *e)
{
    int rc;

    json_scan_feed(&f->scan, piece);
    do {
        switch ((enum mode)f->mode) {
        case MODE_VALUE:
            rc = read_field_value(f, e);
            break;
        case MODE_SKIP:
            rc = skip_field(f, e);
            break;
        case MODE_BULK:
            rc = read_bulk(f, e);
            break;
        default:
            rc = read_next_token(f, e);
        }
    } while (rc == 1);
    return rc == 2 ? 1 : rc;
}
