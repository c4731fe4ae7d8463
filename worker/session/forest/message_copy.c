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
