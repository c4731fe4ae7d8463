/*
 * The id that an answer returns shows whose answer it is. Connections are kept, so a surplus answer
 * may precede the right one. An engine that has returned the id of a request must return that of
 * each. For other engines only an id in our form can be judged: older servers, and routers in front
 * of them, return ids of their own.
 */
#include "worker/engine/wire/reading_internal.h"
#include "worker/engine/wire/remote.h"

void reading_expect_id(struct reading *r, struct buf *id)
{
    r->id = *id;
    *id = (struct buf){0};
}

void reading_expect_echo(struct reading *r, bool echoes)
{
    r->echoes = echoes;
}

bool reading_echoed(const struct reading *r)
{
    return r->echoed;
}

struct str reading_answer_id(const struct reading *r)
{
    return buf_str(&r->reply.answer_id);
}

struct str reading_own_id(const struct reading *r)
{
    bool own = r->taken && !r->stray && r->reply.answer_id.len > 0;

    return own ? buf_str(&r->reply.answer_id) : (struct str){0};
}

/* Reports whether an answer's id is the expected one, perhaps after vLLM's prefix. */
static bool is_expected(struct str id, struct str expected)
{
    static const char *const prefixes[] = {"", "generate-tokens-", "cmpl-", "chatcmpl-"};

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        struct str prefix = str_cstr(prefixes[i]);

        if (str_starts(id, prefix) && str_eq(str_sub(id, prefix.len, id.len), expected))
            return true;
    }
    return false;
}

int reading_check_id(struct reading *r, struct err *e)
{
    struct str id = buf_str(&r->reply.answer_id), expected = buf_str(&r->id);
    bool first = !r->taken;

    r->taken = true;
    if (r->echoed || expected.len == 0 || id.len == 0)
        return READING_MORE;
    r->echoed = is_expected(id, expected);
    if (r->echoed || (!r->echoes && (!remote_is_rid(id) || str_ends(id, expected))))
        return READING_MORE;
    r->stray = true;
    (void)err_set(e, ERR_ENGINE_INVALID,
                  "the engine's answer is invalid: it is for another request");
    return first ? READING_STRAY : -1;
}
