/* One of a batch's requests as text, and its answer as a message. */
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "worker/api/api_call.h"
#include "worker/dialect/request_fields.h"

/* The request with the k-th prompt only, as text in the arena. */
struct str batch_part_body(struct arena *a, const struct json *body, uint32_t k)
{
    struct json all = json_empty(JSON_OBJECT);
    struct json text;

    for (uint32_t i = 0; i < body->n; i++) {
        struct str key = json_string(&body->members[i].key);
        const struct json *v = &body->members[i].value;
        const struct json *own = str_eq_c(key, "prompt") ? json_at(v, k) : v;

        if (own)
            json_put(a, &all, arena_cstr(a, key), *own);
    }
    text = json_text_of(a, &all);
    return json_string(&text);
}

const struct json *batch_message(struct arena *a, struct str text)
{
    return json_keep(a, json_message(a, "assistant", json_make_string(arena_str(a, text))));
}
