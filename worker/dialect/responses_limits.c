/* Limits the members of a Responses request that a call records in addition to the conversation.
 * Members in the prompt are limited by the context; the others have no other limit. */
#include "common/base/limits.h"
#include "common/codec/json.h"
#include "worker/dialect/responses_internal.h"

int responses_check_id(const char *path, struct str id, struct err *e)
{
    if (id.len <= RESPONSE_ID_MAX)
        return 0;
    return err_field(e, path, "%s has %zu bytes, but an id may have %d at most", path, id.len,
                     RESPONSE_ID_MAX);
}

/* Returns the bytes of `text` without its schema, which becomes a grammar with a limit of its
 * own. */
static size_t text_bytes(const struct json *text)
{
    const struct json *format = json_get(text, "format");
    size_t n = json_text_bytes(text, SIZE_MAX);

    if (str_eq_c(json_string(json_get(format, "type")), "json_schema"))
        n -= json_text_bytes(json_get(format, "schema"), SIZE_MAX);
    return n;
}

/* Returns the bytes of a recorded member. Tools are counted separately; instructions are in the
 * prompt. */
static size_t member_bytes(const struct json *body, const char *name)
{
    if (strcmp(name, "tools") == 0 || strcmp(name, "instructions") == 0)
        return 0;
    if (strcmp(name, "text") == 0)
        return text_bytes(json_get(body, name));
    return json_text_bytes(json_get(body, name), SIZE_MAX);
}

static int fail_too_long(const char *name, size_t bytes, uint64_t max_bytes, struct err *e)
{
    return err_field(e, name,
                     "%s: %zu bytes are recorded with the call and in no prompt; with the others "
                     "of this kind --max-metadata-bytes allows %llu",
                     name, bytes, (unsigned long long)max_bytes);
}

/* Checks the size of the recorded members. Computes the tools that are in no prompt only if all
 * tools together would exceed the limit. */
int responses_recorded(struct arena *a, const struct json *body, uint64_t max_bytes, struct err *e)
{
    size_t sum = json_text_bytes(json_get(body, "model"), SIZE_MAX), n;

    if (sum > max_bytes)
        return fail_too_long("model", sum, max_bytes, e);
    for (size_t i = 0; responses_echoed(i); i++) {
        n = member_bytes(body, responses_echoed(i));
        sum += n;
        if (sum > max_bytes)
            return fail_too_long(responses_echoed(i), n, max_bytes, e);
    }
    if (sum + json_text_bytes(responses_tools_of(a, body), SIZE_MAX) <= max_bytes)
        return 0;
    n = responses_tools_unseen(a, body);
    return sum + n > max_bytes ? fail_too_long("tools", n, max_bytes, e) : 0;
}
