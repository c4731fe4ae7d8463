/*
 * Kept results of placeholders are found if all inputs are equal, otherwise not.
 */

#include "testing.h"
#include "worker/text/model/model_internal.h"
#include "worker/text/model/standin.h"
#include "worker/text/model/standin_memo.h"

struct kit {
    struct model *m;
    struct model_scratch *s;
    struct arena arena;
};

/* Reports whether a chat with these messages and variables, as JSON, is found. */
static bool finds(struct kit *k, const char *messages, const char *kwargs, bool tools)
{
    static const struct json tool = {.kind = JSON_ARRAY};
    static const struct json last = {.kind = JSON_OBJECT};
    struct standin_in in = {.last = &last};
    const struct json *list = NULL;
    struct rendering r = {.tools = tools ? &tool : NULL, .seconds = 7};
    size_t prompt_ends;
    struct err e;

    cr_assert_eq(json_parse(&k->arena, str_cstr(messages), &list, &e), 0, "%s", e.text);
    if (kwargs)
        cr_assert_eq(json_parse(&k->arena, str_cstr(kwargs), &in.kwargs, &e), 0, "%s", e.text);
    r.kwargs = in.kwargs;
    r.messages = list->items;
    r.n = list->n;
    if (!standin_memo_find(k->s, &in, &r, &prompt_ends))
        return false;
    cr_expect_eq(prompt_ends, 3);
    cr_expect(str_eq_c(buf_str(&k->s->a), "prompt"));
    return true;
}

TEST(memo, finds_the_same_only)
{
    static const struct {
        const char *messages, *kwargs;
        bool tools;
    } others[] = {
        {"[]", NULL, false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", NULL, true},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{}", false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{\"a\":true}", false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{\"a\":false}", false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{\"a\":\"true\"}", false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{\"a\":1}", false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{\"a\":12}", false},
        {"[{\"role\":\"user\",\"content\":\"ab\"}]", "{\"a\":1,\"2\":1}", false},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", NULL, false},
        {"[{\"role\":\"user\",\"content\":null}]", NULL, false},
        {"[{\"role\":\"usera\",\"content\":\"b\"}]", NULL, false},
        {"[{\"role\":\"user\",\"contentab\":\"\"}]", NULL, false},
        {"[{\"content\":\"ab\",\"role\":\"user\"}]", NULL, false},
        {"[{\"role\":\"user\",\"content\":[\"ab\"]}]", NULL, false},
        {"[{\"role\":\"user\"},{\"content\":\"ab\"}]", NULL, false},
    };
    struct model_options o = {0};
    struct kit k = {0};
    struct err e;

    cr_assert_eq(model_load(&o, &k.m, &e), 0, "%s", e.text);
    for (size_t kept = 0; kept < ARRAY_LEN(others); kept++) {
        k.s = model_scratch_new(k.m);
        model_scratch_remember(k.s);
        cr_expect_not(finds(&k, others[kept].messages, others[kept].kwargs, others[kept].tools));
        buf_puts(&k.s->a, "prompt");
        standin_memo_keep(k.s, 3);
        for (size_t i = 0; i < ARRAY_LEN(others); i++)
            cr_expect_eq(finds(&k, others[i].messages, others[i].kwargs, others[i].tools),
                         i == kept, "%zu is kept, %zu is asked for", kept, i);
        model_scratch_free(k.s);
    }
    arena_done(&k.arena);
    model_free(k.m);
}
