/* Makes the environment of a request with long tools in the two forms in which its session keeps it
 * (new_env.h). */
#include "worker/session/record/new_env.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/session/record/record.h"
#include "worker/text/request/chat.h"

static void count_env_bytes(const struct new_env *v, size_t bytes)
{
    if (v->sum)
        atomic_fetch_add_explicit(v->sum, bytes, memory_order_relaxed);
}

/* Copies the value whose text is next. Returns false if the text cannot be read. An absent value
 * becomes NULL, as it was given. */
static bool read_back(struct new_env *v, struct record_in *r, const struct json **value)
{
    struct str text = record_str(r);

    *value = text.p ? message_copy_text(&v->copy, text) : NULL;
    return *value || !text.p;
}

static struct new_env *new_empty_env(atomic_size_t *sum)
{
    struct new_env *v = mem_zalloc(sizeof(*v));

    v->copy = (struct arena){.tight = true, .sum = sum};
    v->sum = sum;
    return v;
}

/* Sets the key to copies of both texts' values. Returns NULL, with v freed, if one cannot be
 * read. */
static struct new_env *with_copies(struct new_env *v, struct str texts)
{
    struct record_in r = record_in_of(texts);

    if (read_back(v, &r, &v->key.tools) && read_back(v, &r, &v->key.kwargs))
        return v;
    new_env_free(v);
    return NULL;
}

struct new_env *new_env_make(const struct env_key *key, atomic_size_t *sum)
{
    struct new_env *v = new_empty_env(sum);

    v->key = *key;
    record_put_json(&v->texts, key->tools);
    record_put_json(&v->texts, key->kwargs);
    count_env_bytes(v, v->texts.cap);
    return with_copies(v, buf_str(&v->texts));
}

struct new_env *new_env_read(struct str texts, atomic_size_t *sum)
{
    struct new_env *v = with_copies(new_empty_env(sum), texts);

    if (!v)
        return NULL;
    /* here, so that the loop does not have to hash the tools */
    long_tools_hash(v->key.tools, v->key.tools_hash);
    v->key.tools_hashed = true;
    return v;
}

void new_env_free(struct new_env *v)
{
    if (!v)
        return;
    count_env_bytes(v, 0 - v->texts.cap);
    buf_done(&v->texts);
    arena_done(&v->copy);
    free(v);
}
