#include "worker/export/tensors.h"

#include "common/base/check.h"

enum { METAS_MAX = 8, CLASSES = 4 };

struct tensor {
    struct str name;
    enum tensor_type type;
    struct shape shape;
    uint64_t bytes;
};

struct meta {
    const char *key;
    struct buf text;
};

struct tensors {
    VEC(struct tensor) all;
    struct meta metas[METAS_MAX];
    size_t n_metas;
    uint64_t class_bytes[CLASSES];
    bool no_meta;
};

static const struct {
    const char *name;
    unsigned size, class;
} TYPES[] = {
    [TENSOR_I64] = {"I64", 8, 0},  [TENSOR_F64] = {"F64", 8, 0}, [TENSOR_F32] = {"F32", 4, 1},
    [TENSOR_I32] = {"I32", 4, 1},  [TENSOR_I16] = {"I16", 2, 2}, [TENSOR_U8] = {"U8", 1, 3},
    [TENSOR_BOOL] = {"BOOL", 1, 3}};

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
    vec_done(&t->all);
    for (size_t i = 0; i < t->n_metas; i++)
        buf_done(&t->metas[i].text);
}

bool tensors_want(const struct export *x, enum tensor_type type)
{
    return x->pass == TYPES[type].class + 1;
}

static uint64_t bytes_of(enum tensor_type type, struct shape s)
{
    uint64_t n = TYPES[type].size;

    for (unsigned i = 0; i < s.n; i++)
        n *= s.at[i];
    return n;
}

void tensors_add(struct export *x, struct buf *out, const char *name, size_t index,
                 enum tensor_type type, struct shape shape, const void *data)
{
    struct tensors *t = x->state;
    uint64_t bytes = bytes_of(type, shape);

    if (tensors_sizing(x)) {
        struct str full =
            index == SIZE_MAX ? str_cstr(name) : arena_printf(&x->arena, "%s.%zu", name, index);

        *vec_push(&t->all) = (struct tensor){full, type, shape, bytes};
        t->class_bytes[TYPES[type].class] += bytes;
    } else if (tensors_want(x, type)) {
        buf_add(out, data, bytes);
    }
}

struct buf *tensors_meta(struct export *x, const char *key)
{
    struct tensors *t = x->state;

    for (size_t i = 0; i < t->n_metas; i++)
        if (t->metas[i].key == key)
            return &t->metas[i].text;
    CHECK(t->n_metas < METAS_MAX);
    t->metas[t->n_metas].key = key;
    return &t->metas[t->n_metas++].text;
}

void tensors_forget_meta(struct export *x)
{
    struct tensors *t = x->state;

    t->no_meta = true;
}

static void put_entry(struct json_out *o, const struct tensor *t, uint64_t from)
{
    json_out_key_str(o, t->name);
    json_out_obj(o);
    json_out_key(o, "dtype");
    json_out_cstr(o, TYPES[t->type].name);
    json_out_key(o, "shape");
    json_out_arr(o);
    for (unsigned i = 0; i < t->shape.n; i++)
        json_out_i64(o, (int64_t)t->shape.at[i]);
    json_out_end_arr(o);
    json_out_key(o, "data_offsets");
    json_out_arr(o);
    json_out_i64(o, (int64_t)from);
    json_out_i64(o, (int64_t)(from + t->bytes));
    json_out_end_arr(o);
    json_out_end_obj(o);
}

static void put_metas(const struct tensors *t, struct json_out *o)
{
    json_out_key(o, "__metadata__");
    json_out_obj(o);
    for (size_t i = 0; i < t->n_metas; i++) {
        json_out_key(o, t->metas[i].key);
        json_out_str(o, buf_str(&t->metas[i].text));
    }
    json_out_end_obj(o);
}

static void put_header(struct tensors *t, struct buf *text)
{
    struct json_out o = json_out_to(text);
    uint64_t at = 0;

    json_out_obj(&o);
    if (!t->no_meta)
        put_metas(t, &o);
    for (unsigned class = 0; class < CLASSES; class ++)
        for (size_t i = 0; i < t->all.n; i++)
            if (TYPES[t->all.at[i].type].class == class) {
                put_entry(&o, &t->all.at[i], at);
                at += t->all.at[i].bytes;
            }
    json_out_end_obj(&o);
    while (text->len % 8)
        buf_add_c(text, ' ');
}

void tensors_end(struct export *x, struct buf *out)
{
    struct tensors *t = x->state;

    if (tensors_sizing(x)) {
        struct buf text = {0};
        uint64_t n;

        put_header(t, &text);
        n = text.len;
        buf_add(out, &n, sizeof(n));
        buf_add_str(out, buf_str(&text));
        buf_done(&text);
    }
    /* Element sizes that do not occur need no pass. */
    while (x->pass < CLASSES && t->class_bytes[x->pass] == 0)
        x->pass++;
}

int64_t *tensors_wide(struct export *x, const int32_t *v, size_t n)
{
    int64_t *w = arena_alloc(&x->scratch, n * sizeof(*w));

    for (size_t i = 0; i < n; i++)
        w[i] = v[i];
    return w;
}

int64_t *tensors_wide_u8(struct export *x, const uint8_t *v, size_t n)
{
    int64_t *w = arena_alloc(&x->scratch, n * sizeof(*w));

    for (size_t i = 0; i < n; i++)
        w[i] = v[i];
    return w;
}
