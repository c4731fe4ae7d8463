/* A bias of -100 counts as a ban: it multiplies the token's probability by less than 1e-43. Beside
 * a grammar or allowed_token_ids, which may leave no other token, it does not. */
#include "worker/plane/call/id_rules.h"

#include "common/base/arena.h"
#include "common/base/str.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"

#define BIAS_BAN (-100.0)

struct id_rules {
    const char *name; /* name of the request's parameter */
    bool listed;      /* the bits mark allowed ids; else forbidden ids */
    uint32_t vocab_size;
    uint64_t *bits;
};

static void set_bit(struct id_rules *r, int64_t id)
{
    if (id >= 0 && id < r->vocab_size)
        r->bits[id / 64] |= (uint64_t)1 << (id % 64);
}

static bool has_bit(const struct id_rules *r, int32_t id)
{
    return id >= 0 && (uint32_t)id < r->vocab_size && r->bits[id / 64] >> (id % 64) & 1;
}

static struct id_rules *make_rules(struct arena *a, const char *name, bool listed, uint32_t size)
{
    struct id_rules *r = ARENA_NEW(a, struct id_rules);

    *r = (struct id_rules){.name = name, .listed = listed, .vocab_size = size};
    r->bits = arena_calloc(a, size / 64 + 1, sizeof(*r->bits));
    return r;
}

static struct id_rules *rules_of_list(struct arena *a, const struct json *list, uint32_t size)
{
    struct id_rules *r = make_rules(a, "allowed_token_ids", true, size);

    for (size_t i = 0; i < list->n; i++) {
        int64_t id;

        if (json_to_i64(json_at(list, i), &id) == 0)
            set_bit(r, id);
    }
    return r;
}

static struct id_rules *rules_of_bias(struct arena *a, const struct json *bias, uint32_t size)
{
    struct id_rules *r = NULL;

    for (size_t i = 0; i < bias->n; i++) {
        uint64_t id;
        double value;

        if (json_to_double(&bias->members[i].value, &value) || value > BIAS_BAN ||
            str_to_u64(json_string(&bias->members[i].key), INT32_MAX, &id) < 0)
            continue;
        r = r ? r : make_rules(a, "logit_bias", false, size);
        set_bit(r, (int64_t)id);
    }
    return r;
}

const struct id_rules *id_rules_new(struct arena *a, const struct sampling *s, uint32_t vocab_size)
{
    if (vocab_size == 0)
        return NULL;
    if (json_is(s->allowed_token_ids, JSON_ARRAY))
        return rules_of_list(a, s->allowed_token_ids, vocab_size);
    if (json_is(s->logit_bias, JSON_OBJECT) && !s->grammar)
        return rules_of_bias(a, s->logit_bias, vocab_size);
    return NULL;
}

const char *id_rules_broken(const struct id_rules *r, struct token_span ids, size_t *ret_at)
{
    for (size_t i = 0; r && i < ids.n; i++) {
        if (has_bit(r, ids.at[i]) == r->listed)
            continue;
        *ret_at = i;
        return r->name;
    }
    return NULL;
}
