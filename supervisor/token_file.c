/* Reads a file of tensors: the length of its header (8 bytes), the header (JSON), the data. */
#include "supervisor/token_file.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/codec/json.h"

static int refuse_form(struct err *e)
{
    return err_set(e, ERR_IO, "GET /sessions/{id}/tokens was answered in an unknown form");
}

/* Reads a member of the metadata, whose text is JSON. */
static int read_meta(struct token_file *f, const struct json *meta, const char *name,
                     const struct json **ret, struct err *e)
{
    struct str text = json_string(json_get(meta, name));

    return text.p ? json_parse(&f->arena, text, ret, e) : refuse_form(e);
}

/* Copied cells of a tensor with 4-byte elements; NULL and 0: no tensor has the name. */
struct tensor_cells {
    const char *name;
    const void *at;
    uint32_t n;
};

static int read_cells(struct token_file *f, const struct json *header, struct str data,
                      struct tensor_cells *ret, struct err *e)
{
    const struct json *v = json_get(header, ret->name), *offsets = json_get(v, "data_offsets");
    int64_t from = 0, to = 0;
    void *copy;

    if (!v)
        return 0;
    if (json_to_i64(json_at(offsets, 0), &from) || json_to_i64(json_at(offsets, 1), &to) ||
        from < 0 || to < from || (uint64_t)to > data.len || (to - from) % 4 != 0)
        return refuse_form(e);
    copy = arena_alloc(&f->arena, (size_t)(to - from) + 1);
    memcpy(copy, data.p + from, (size_t)(to - from));
    ret->at = copy;
    ret->n = (uint32_t)((to - from) / 4);
    return 0;
}

static int read_tensors(struct token_file *f, const struct json *header, struct str data,
                        struct err *e)
{
    struct tensor_cells cells[] = {{.name = "ids.0"},
                                   {.name = "response_logprobs.0"},
                                   {.name = "response_trainer_logprobs.0"}};

    for (size_t i = 0; i < ARRAY_LEN(cells); i++)
        if (read_cells(f, header, data, &cells[i], e))
            return -1;
    f->ids = cells[0].at;
    f->total = cells[0].n;
    f->logprobs = cells[1].at;
    f->trained = cells[2].at;
    f->n = MIN_OF(cells[1].n > 0 ? cells[1].n : cells[2].n, f->total);
    return (f->logprobs && cells[1].n != f->n) || (f->trained && cells[2].n != f->n)
               ? refuse_form(e)
               : 0;
}

static int by_id(const void *a, const void *b)
{
    const struct token_text *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* Sorts the vocabulary's texts by id, because each token of a branch is looked up. Skips members
 * whose name is not an id. */
static void index_vocabulary(struct token_file *f, const struct json *vocabulary)
{
    size_t n = json_is(vocabulary, JSON_OBJECT) ? vocabulary->n : 0;
    struct token_text *ret = arena_calloc(&f->arena, n + 1, sizeof(*ret));

    for (size_t i = 0; i < n; i++) {
        const struct json_member *m = &vocabulary->members[i];
        uint64_t id;

        if (str_to_u64(json_string(&m->key), INT32_MAX, &id))
            continue;
        ret[f->n_vocabulary++] =
            (struct token_text){(int32_t)id, json_string(json_get(&m->value, "t"))};
    }
    qsort(ret, f->n_vocabulary, sizeof(*ret), by_id);
    f->vocabulary = ret;
}

int token_file_read(struct token_file *f, struct str bytes, struct err *e)
{
    const struct json *header = NULL, *meta, *trajectories = NULL, *vocabulary = NULL;
    uint64_t n = 0;

    *f = (struct token_file){0};
    if (bytes.len < sizeof(n))
        return refuse_form(e);
    memcpy(&n, bytes.p, sizeof(n));
    if (n > bytes.len - sizeof(n))
        return refuse_form(e);
    if (json_parse(&f->arena, str_sub(bytes, sizeof(n), n), &header, e))
        return -1;
    meta = json_get(header, "__metadata__");
    if (read_meta(f, meta, "trajectories", &trajectories, e) ||
        read_meta(f, meta, "vocabulary", &vocabulary, e))
        return -1;
    index_vocabulary(f, vocabulary);
    f->trajectory = json_at(trajectories, 0);
    return read_tensors(f, header, str_sub(bytes, sizeof(n) + n, SIZE_MAX), e);
}

void token_file_done(struct token_file *f)
{
    arena_done(&f->arena);
}

struct str token_file_text(const struct token_file *f, int32_t id)
{
    struct token_text key = {.id = id}, *found;

    if (f->n_vocabulary == 0)
        return (struct str){0};
    found = bsearch(&key, f->vocabulary, f->n_vocabulary, sizeof(key), by_id);
    return found ? found->text : (struct str){0};
}
