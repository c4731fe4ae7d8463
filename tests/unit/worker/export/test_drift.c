#include "common/codec/json.h"
#include "testing.h"
#include "worker/export/build/drift.h"
#include "worker/export/build/drift_audit.h"
#include "worker/text/request/chat.h"

#define U(t) "{\"role\":\"user\",\"content\":\"" t "\"}"
#define A(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"

static char some_model;
static const struct model *const MODEL = (const struct model *)(const void *)&some_model;

static const struct json *parse(struct arena *a, const char *text)
{
    const struct json *v = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(a, str_cstr(text), &v, &e), 0, "%s", e.text);
    return v;
}

static void audit(const char *messages, const char *true_text, struct drift *d)
{
    struct arena arena = {0};
    struct chat chat = {.messages = parse(&arena, messages)};
    size_t n = strlen(true_text);
    int32_t *ids = arena_calloc(&arena, n + 1, sizeof(*ids));
    uint8_t *mask = arena_zalloc(&arena, n + 1);
    struct drift_audit a;

    /* { and } mean <|im_start|> and <|im_end|>; [ is the start of the sampled tokens. */
    size_t k = 0;
    bool sampled = false;

    for (size_t i = 0; i < n; i++) {
        sampled = sampled || true_text[i] == '[';
        if (true_text[i] == '[')
            continue;
        mask[k] = sampled;
        ids[k++] = true_text[i] == '{'   ? 256
                   : true_text[i] == '}' ? 257
                                         : (unsigned char)true_text[i];
    }
    drift_start(&a, MODEL, NULL, &chat);
    while (drift_next(&a))
        continue;
    drift_finish(&a, (struct token_span){ids, k}, mask, d);
    arena_done(&arena);
}

TEST(drift, kinds_of_the_first_mismatch)
{
    struct drift d = {0};
    const char *messages = "[" U("q") "," A("ab") "]";

    audit(messages, "{user\nq}\n{assistant\n[ab}", &d);
    cr_expect(d.audited);
    cr_expect_eq(d.count, 0);
    audit(messages, "{user\nq}\n{assistant\n[ab", &d); /* cut: a missing close is no drift */
    cr_expect_eq(d.count, 0);
    audit(messages, "{user\nq}\n{assistant\n[aX}", &d);
    cr_expect_eq(d.count, 1);
    cr_expect_eq(d.first, DRIFT_ASSISTANT_TEXT);
    audit(messages, "{user\nQ}\n{assistant\n[ab}", &d);
    cr_expect_eq(d.first, DRIFT_NON_ASSISTANT_TEXT);
    cr_expect_eq(d.position, 1);
    audit(messages, "{user\nq}\n{assistant\n[a}b}", &d);
    cr_expect_eq(d.first, DRIFT_SPECIAL_TOKEN_COUNT);
}

TEST(drift, places_hold_what_differs_on_both_sides)
{
    struct drift_places places = {0};
    struct drift d = {.places = &places};
    const char *messages = "[" U("q") "," A("abcd") "]";

    audit(messages, "{user\nq}\n{assistant\n[abcd}", &d);
    cr_expect_eq(places.n, 0);
    audit(messages, "{user\nQ}\n{assistant\n[aXYd}", &d);
    cr_expect_eq(d.count, 2);
    cr_assert_eq(places.n, 2);
    cr_expect_eq(places.at[0].kind, DRIFT_NON_ASSISTANT_TEXT);
    cr_expect_eq(places.at[0].position, 6, "the run's own beginning is the same");
    cr_expect_eq(places.at[0].n, 1);
    cr_expect_eq(places.at[0].n_wanted, 1);
    cr_expect_eq(places.at[0].wanted[0], 'q');
    cr_expect_eq(places.at[1].position, 21);
    cr_expect_eq(places.at[1].n, 2);
    cr_expect_eq(places.at[1].n_wanted, 2);
    cr_expect_eq(places.at[1].wanted[1], 'c');
    places.n = 0;
    audit(messages, "{user\nq}\n{assistant\n[ab}d}", &d);
    cr_assert_eq(places.n, 1);
    cr_expect_eq(places.at[0].kind, DRIFT_SPECIAL_TOKEN_COUNT);
    cr_expect_eq(places.at[0].position, 22);
    cr_expect_eq(places.at[0].n, 1);
    cr_expect_eq(places.at[0].n_wanted, 1);
}

TEST(drift, places_are_bounded)
{
    struct drift_places places = {0};
    struct drift d = {.places = &places};
    struct buf messages = {0}, ids = {0};
    struct str one = STR(U("q") "," A("a"));

    for (int i = 0; i < 12; i++) {
        buf_add_c(&messages, i ? ',' : '[');
        buf_add_str(&messages, one);
        buf_printf(&ids, "{user\nQ}\n{assistant\na}%s", i < 11 ? "\n" : "");
    }
    buf_printf(&messages, "]%c", 0);
    buf_add_c(&ids, 0);
    audit(messages.p, ids.p, &d);
    cr_expect_eq(d.count, 12);
    cr_expect_eq(places.n, DRIFT_PLACES_MAX);
    buf_done(&messages);
    buf_done(&ids);
}
