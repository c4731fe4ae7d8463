/*
 * A version is the trainer's last one for an adapter. An absent version removes the adapter, and
 * the last entry gets its index, because the order has no meaning. Names and versions are the
 * book's own copies.
 */
#include "worker/engine/pool/lora.h"

#include "common/base/vec.h"
#include "common/codec/json.h"

static struct lora *find_adapter(const struct lora_book *b, struct str name)
{
    for (size_t i = 0; i < b->n; i++) {
        if (str_eq(buf_str(&b->at[i].name), name))
            return &b->at[i];
    }
    return NULL;
}

static void drop_version(struct lora_book *b, struct lora *l)
{
    buf_done(&l->name);
    buf_done(&l->version);
    *l = b->at[--b->n];
}

void lora_done(struct lora_book *b)
{
    while (b->n > 0)
        drop_version(b, &b->at[b->n - 1]);
    vec_done(b);
}

int lora_set(struct lora_book *b, struct str name, struct str version)
{
    struct lora *l = find_adapter(b, name);

    if (version.len == 0) {
        if (l)
            drop_version(b, l);
        return 0;
    }
    if (!l && b->n >= LORAS_MAX)
        return -1;
    if (!l) {
        l = vec_push(b);
        *l = (struct lora){0};
        buf_add_str(&l->name, name);
    }
    buf_set(&l->version, version);
    return 0;
}

void lora_write(const struct lora_book *b, struct json_out *o)
{
    json_out_arr(o);
    for (size_t i = 0; i < b->n; i++) {
        json_out_obj(o);
        json_out_member_str(o, "name", buf_str(&b->at[i].name));
        json_out_member_str(o, "version", buf_str(&b->at[i].version));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

struct str lora_version(const struct lora_book *b, struct str name)
{
    const struct lora *l = find_adapter(b, name);

    return l ? buf_str(&l->version) : (struct str){0};
}
