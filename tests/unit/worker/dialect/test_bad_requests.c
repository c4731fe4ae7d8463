/* tests/data/api/bad_requests.jsonl: every one is refused, and the error names the field. */
#include "common/codec/json.h"
#include "file_text.h"
#include "testing.h"
#include "worker/dialect/writers.h"
#include "worker/request/chat_request.h"

static const struct dialect *dialect_named(struct str name)
{
    static const struct dialect *const all[] = {&dialect_chat, &dialect_messages,
                                                &dialect_count_tokens, &dialect_responses,
                                                &dialect_completions};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (str_eq_c(name, all[i]->name))
            return all[i];
    return NULL;
}

static const struct json *no_past(void *ctx, struct arena *a, struct str id,
                                  struct str *ret_instructions)
{
    (void)ctx, (void)a, (void)id;
    *ret_instructions = (struct str){0};
    return NULL;
}

static void check_line(struct str line)
{
    struct arena a = {0};
    const struct json *row;
    const struct dialect_past past = {.response = no_past};
    struct chat_request req;
    struct err e = {0};
    const struct dialect *d;
    struct str want;

    cr_assert_eq(json_parse(&a, line, &row, &e), 0, "%.*s: %s", (int)line.len, line.p, e.text);
    want = json_string(json_get(row, "param"));
    d = dialect_named(json_string(json_get(row, "dialect")));
    cr_assert(d && want.p);
    cr_expect_eq(d->parse(&a, json_get(row, "body"), NULL, &past, &req, &e), -1, "accepted: %.*s",
                 (int)line.len, line.p);
    cr_expect(str_eq(str_cstr(e.param), want), "%.*s\n%s: %s", (int)line.len, line.p, e.param,
              e.text);
    /* The text names the field as well: many clients show only that. */
    cr_expect_neq(str_find(str_cstr(e.text), str_sub(want, 0, str_find(want, STR("."), 0)), 0),
                  SIZE_MAX, "%s does not name %s", e.text, e.param);
    arena_done(&a);
}

TEST(bad_requests, each_names_its_field)
{
    struct arena a = {0};
    struct str rest = file_text(&a, RG_TEST_DATA "/api/bad_requests.jsonl");
    int n = 0;

    while (rest.len) {
        struct str line = str_sub(rest, 0, str_find(rest, STR("\n"), 0));

        check_line(line);
        rest = str_sub(rest, line.len + 1, rest.len);
        n++;
    }
    cr_assert_geq(n, 120);
    arena_done(&a);
}
