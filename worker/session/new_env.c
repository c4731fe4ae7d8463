/* The environment of a request with long tools, in the two forms in which its session keeps it
 * (new_env.h). */
#include "worker/session/new_env.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/session/record.h"

/* The text of one value, and the copy that is read back from it; NULL stays NULL. */
static int make_one(struct new_env *v, const struct json *given, const struct json **ret)
{
    struct arena tmp = {.sum = v->sum};
    const struct json *parsed;
    struct err e;
    size_t from;
    int rc;

    *ret = NULL;
    if (!given) {
        record_put_str(&v->texts, (struct str){0});
        return 0;
    }
    from = record_open_str(&v->texts);
    json_write(&v->texts, given);
    rc = json_parse(&tmp, str_sub(buf_str(&v->texts), from, SIZE_MAX), &parsed, &e);
    if (rc == 0)
        *ret = message_copy(&v->copy, parsed);
    record_close_str(&v->texts, from);
    arena_done(&tmp);
    return rc;
}

static void count(const struct new_env *v, size_t bytes)
{
    if (v->sum)
        atomic_fetch_add_explicit(v->sum, bytes, memory_order_relaxed);
}

struct new_env *new_env_make(const struct env_key *key, atomic_size_t *sum)
{
    struct new_env *v = mem_zalloc(sizeof(*v));

    v->copy = (struct arena){.tight = true, .sum = sum};
    v->sum = sum;
    v->key = *key;
    if (make_one(v, key->tools, &v->key.tools) != 0 ||
        make_one(v, key->kwargs, &v->key.kwargs) != 0) {
        count(v, v->texts.cap);
        new_env_free(v);
        return NULL;
    }
    count(v, v->texts.cap);
    return v;
}

void new_env_free(struct new_env *v)
{
    if (!v)
        return;
    count(v, 0 - v->texts.cap);
    buf_done(&v->texts);
    arena_done(&v->copy);
    free(v);
}
