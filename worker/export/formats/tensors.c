/*
 * The file, and the pass of the export that makes each section:
 *
 *   | length | {"__metadata__": ..., "NAME": {dtype, ...}, ...} | data, by bytes of an element |
 *      1           0                 1                            8: 2    4: 3    2: 4    1: 5
 *
 * Pass 0 collects metadata and sizes, pass 1 the entries; at its end the header is written. Data
 * has a pass for each size of an element.
 *
 * Data of one element size is contiguous, so the offset of a tensor follows from the sizes before
 * it (class_at), and every tensor is aligned without padding. A pass for a size that does not occur
 * is left out.
 *
 * Header texts may be long. After each trajectory tensors_escape_meta escapes them into chunks that
 * never move, and the rope reads them there.
 */
#include "worker/export/formats/tensors.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/vec.h"
#include "common/codec/json.h"

enum {
    METAS_MAX = 8,
    CLASSES = 4,
    PASS_ENTRIES = 1,
    PASS_DATA = 2,
    CHUNK_BYTES = 256 << 10,
    PIECE_BYTES = 64 << 10 /* bytes escaped between two pauses: a fifth of a millisecond */
};

/* A text that may become very long, in chunks, so that it is never copied. */
struct chunks {
    VEC(struct buf) full;
    struct buf last;
    uint64_t len; /* length of the full chunks */
};

struct meta {
    const char *key;
    struct buf fresh; /* JSON text of the present trajectory */
    /* everything before it, as the inside of a JSON string (no_meta: unescaped) */
    struct chunks text;
};

struct tensors {
    struct meta metas[METAS_MAX];
    size_t n_metas;
    uint64_t class_bytes[CLASSES];
    uint64_t class_at[CLASSES]; /* offset of the next tensor of each class */
    struct chunks entries;
    bool no_meta;
};

static const struct {
    const char *name;
    unsigned size, class;
} TYPES[] = {
    [TENSOR_I64] = {"I64", 8, 0},  [TENSOR_F64] = {"F64", 8, 0}, [TENSOR_F32] = {"F32", 4, 1},
    [TENSOR_I32] = {"I32", 4, 1},  [TENSOR_I16] = {"I16", 2, 2}, [TENSOR_U8] = {"U8", 1, 3},
    [TENSOR_BOOL] = {"BOOL", 1, 3}};

static uint64_t chunks_len(const struct chunks *c)
{
    return c->len + c->last.len;
}

/* Takes ownership of a long text; `b` is empty afterwards. */
static void chunks_take(struct chunks *c, struct buf *b)
{
    if (b->len < PIECE_BYTES) {
        buf_add_str(&c->last, buf_str(b));
        buf_done(b);
        return;
    }
    c->len += c->last.len + b->len;
    *vec_push(&c->full) = c->last;
    *vec_push(&c->full) = *b;
    c->last = *b = (struct buf){0};
}

/* Starts a new chunk if c->last is full. Call it after appending to c->last. */
static void chunks_settle(struct chunks *c)
{
    if (c->last.len < CHUNK_BYTES)
        return;
    c->len += c->last.len;
    *vec_push(&c->full) = c->last;
    c->last = (struct buf){0};
}

/* Adds the bytes to the rope, and frees them with the scratch arena. */
static void send_text(struct export *x, struct buf *b)
{
    if (b->len == 0)
        return;
    rope_add(&x->rope, PIECE_RAW, b->p, b->len);
    arena_own(&x->scratch, b->p, b->cap);
    *b = (struct buf){0};
}

static void chunks_send(struct chunks *c, struct export *x)
{
    for (size_t i = 0; i < c->full.n; i++)
        send_text(x, &c->full.at[i]);
    vec_clear(&c->full);
    send_text(x, &c->last);
}

static void chunks_done(struct chunks *c)
{
    for (size_t i = 0; i < c->full.n; i++)
        buf_done(&c->full.at[i]);
    vec_done(&c->full);
    buf_done(&c->last);
}

void tensors_begin(struct export *x, struct buf *out)
{
    (void)out;
    x->state = ARENA_NEW(&x->arena, struct tensors);
}

void tensors_drop(struct export *x)
{
    struct tensors *t = x->state;

    if (!t)
        return;
    chunks_done(&t->entries);
    for (size_t i = 0; i < t->n_metas; i++) {
        struct meta *m = &t->metas[i];

        buf_done(&m->fresh);
        chunks_done(&m->text);
    }
}

bool tensors_want(const struct export *x, enum tensor_type type)
{
    return x->pass == TYPES[type].class + PASS_DATA;
}

static uint64_t bytes_of(enum tensor_type type, struct shape s)
{
    uint64_t n = TYPES[type].size;

    for (unsigned i = 0; i < s.n; i++)
        n *= s.at[i];
    return n;
}

/* Returns a piece of the text from `at` on, which ends at a character's end. */
static struct str next_piece(const struct buf *from, size_t at)
{
    size_t end = MIN_OF(from->len, at + PIECE_BYTES);

    while (end < from->len && ((unsigned char)from->p[end] & 0xc0) == 0x80)
        end++;
    return str_of(from->p + at, end - at);
}

/* Appends the piece as the inside of a string. */
static void escape_piece(struct meta *m, struct str piece)
{
    struct buf *text = &m->text.last;
    size_t at = text->len;

    json_write_string(text, piece);
    memmove(text->p + at, text->p + at + 1, text->len - at - 2);
    text->len -= 2;
    chunks_settle(&m->text);
}

MAY_PAUSE static void escape_fresh(struct export *x, struct meta *m)
{
    struct str piece;

    for (size_t at = 0; at < m->fresh.len && export_pause(x); at += piece.len) {
        piece = next_piece(&m->fresh, at);
        escape_piece(m, piece);
    }
    buf_done(&m->fresh);
}

/* Counts all texts that are kept. */
static void count_kept(struct export *x)
{
    const struct tensors *t = x->state;

    x->kept_bytes = chunks_len(&t->entries);
    for (size_t i = 0; i < t->n_metas; i++)
        x->kept_bytes += t->metas[i].fresh.cap + chunks_len(&t->metas[i].text);
}

void tensors_escape_meta(struct export *x)
{
    struct tensors *t = x->state;

    for (size_t i = 0; i < t->n_metas; i++) {
        struct meta *m = &t->metas[i];

        count_kept(x);
        if (t->no_meta) {
            chunks_take(&m->text, &m->fresh);
            chunks_settle(&m->text);
        } else {
            escape_fresh(x, m);
        }
    }
    count_kept(x);
}

static void put_entry(struct tensors *t, struct str name, enum tensor_type type, struct shape shape,
                      uint64_t bytes)
{
    struct json_out o = {&t->entries.last, chunks_len(&t->entries) > 0};
    uint64_t *at = &t->class_at[TYPES[type].class];

    json_out_key_str(&o, name);
    json_out_obj(&o);
    json_out_member_cstr(&o, "dtype", TYPES[type].name);
    json_out_member_arr(&o, "shape");
    for (unsigned i = 0; i < shape.n; i++)
        json_out_i64(&o, (int64_t)shape.at[i]);
    json_out_end_arr(&o);
    json_out_member_arr(&o, "data_offsets");
    json_out_i64(&o, (int64_t)*at);
    json_out_i64(&o, (int64_t)(*at + bytes));
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    *at += bytes;
    chunks_settle(&t->entries);
}

static void put_cells(struct export *x, enum tensor_type type, struct cells c, uint64_t n)
{
    bool bytewise = c.kind == PIECE_RAW || c.kind == PIECE_ZEROS || c.kind == PIECE_MINUS_ONES ||
                    c.kind == PIECE_SOURCE;

    rope_add(&x->rope, c.kind, c.p, bytewise ? n * TYPES[type].size : n);
}

/* A tensor has all these parameters. NOLINTNEXTLINE(readability-function-size) */
void tensors_add_two(struct export *x, struct tensor_name name, enum tensor_type type,
                     struct shape shape, struct cells first, uint64_t n_first, struct cells rest)
{
    struct tensors *t = x->state;
    uint64_t bytes = bytes_of(type, shape);

    if (tensors_sizing(x)) {
        t->class_bytes[TYPES[type].class] += bytes;
    } else if (x->pass == PASS_ENTRIES) {
        struct str full = name.index == SIZE_MAX
                              ? str_cstr(name.name)
                              : arena_printf(&x->scratch, "%s.%zu", name.name, name.index);

        put_entry(t, full, type, shape, bytes);
    } else if (tensors_want(x, type)) {
        put_cells(x, type, first, n_first);
        put_cells(x, type, rest, bytes / TYPES[type].size - n_first);
    }
}

void tensors_add(struct export *x, const char *name, size_t index, enum tensor_type type,
                 struct shape shape, struct cells cells)
{
    tensors_add_two(x, (struct tensor_name){name, index}, type, shape, CELLS(ZEROS, NULL), 0,
                    cells);
}

void tensors_add_meta(struct export *x, const char *name)
{
    struct tensors *t = x->state;
    struct chunks *c = &t->metas[0].text;
    struct shape shape;

    CHECK(t->no_meta && t->n_metas == 1);
    tensors_escape_meta(x);
    shape = SHAPE1(chunks_len(c));
    if (!tensors_want(x, TENSOR_U8)) {
        tensors_add(x, name, SIZE_MAX, TENSOR_U8, shape, CELLS(RAW, NULL));
        return;
    }
    for (size_t i = 0; i < c->full.n; i++)
        rope_add(&x->rope, PIECE_RAW, c->full.at[i].p, c->full.at[i].len);
    rope_add(&x->rope, PIECE_RAW, c->last.p, c->last.len);
}

static struct meta *meta_of(struct export *x, const char *key)
{
    struct tensors *t = x->state;

    for (size_t i = 0; i < t->n_metas; i++)
        if (strcmp(t->metas[i].key, key) == 0)
            return &t->metas[i];
    CHECK(t->n_metas < METAS_MAX);
    t->metas[t->n_metas].key = key;
    return &t->metas[t->n_metas++];
}

struct buf *tensors_meta(struct export *x, const char *key)
{
    return &meta_of(x, key)->fresh;
}

void tensors_forget_meta(struct export *x)
{
    struct tensors *t = x->state;

    t->no_meta = true;
}

/* Passes on the metadata's texts without copying. `text` has the bytes before the next one. */
MAY_PAUSE static void put_metas(struct export *x, struct buf *text, uint64_t *total)
{
    struct tensors *t = x->state;

    tensors_escape_meta(x);
    buf_puts(text, "\"__metadata__\":{");
    for (size_t i = 0; i < t->n_metas; i++) {
        buf_puts(text, i ? ",\"" : "\"");
        buf_puts(text, t->metas[i].key);
        buf_puts(text, "\":\"");
        *total += text->len + chunks_len(&t->metas[i].text);
        send_text(x, text);
        chunks_send(&t->metas[i].text, x);
        buf_add_c(text, '"');
    }
    buf_add_c(text, '}');
}

MAY_PAUSE static void put_header(struct export *x, struct buf *out)
{
    struct tensors *t = x->state;
    struct buf text = {0};
    uint64_t total = chunks_len(&t->entries);

    buf_add_c(&text, '{');
    if (!t->no_meta)
        put_metas(x, &text, &total);
    if (!t->no_meta && chunks_len(&t->entries) > 0)
        buf_add_c(&text, ',');
    total += text.len;
    send_text(x, &text);
    chunks_send(&t->entries, x);
    do {
        buf_add_c(&text, text.len ? ' ' : '}');
    } while ((total + text.len) % 8);
    total += text.len;
    send_text(x, &text);
    buf_add(out, &total, sizeof(total));
}

/* Places the classes, larger elements first, so that every tensor is aligned. */
static void place_classes(struct tensors *t)
{
    for (unsigned i = 1; i < CLASSES; i++)
        t->class_at[i] = t->class_at[i - 1] + t->class_bytes[i - 1];
}

void tensors_end(struct export *x, struct buf *out)
{
    struct tensors *t = x->state;

    if (tensors_sizing(x)) {
        place_classes(t);
        return;
    }
    if (x->pass == PASS_ENTRIES)
        put_header(x, out);
    /* Element sizes that do not occur need no pass. */
    while (x->pass + 1 < CLASSES + PASS_DATA && t->class_bytes[x->pass + 1 - PASS_DATA] == 0)
        x->pass++;
}
