/* Copies of messages (message.h). */

#include "worker/session/forest/message.h"

#include "common/codec/json.h"
#include "common/codec/json_build.h"

const struct json *message_copy_text(struct arena *a, struct str text)
{
    struct arena tmp = {.sum = a->sum};
    const struct json *parsed;
    const struct json *ret =
        text.p && json_parse(&tmp, text, &parsed, NULL) == 0 ? json_copy(a, parsed) : NULL;

    arena_done(&tmp);
    return ret;
}

struct json message_with_thought(const struct json *said, const struct json *answer,
                                 struct arena *a)
{
    static const char *const key = "reasoning_content";
    const struct json *thought = json_get(answer, key);
    struct json ret = json_empty(JSON_OBJECT);

    if (!thought || json_get(said, key))
        return *said;
    for (uint32_t i = 0; i < said->n; i++)
        json_put(a, &ret, arena_cstr(a, json_string(&said->members[i].key)),
                 said->members[i].value);
    json_put(a, &ret, key, *thought);
    return ret;
}
