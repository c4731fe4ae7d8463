/*
 * Cases of tests/data/tokens/pipelines.jsonl: results of the reference library for random
 * tokenizers.
 */
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "tokens_kit.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

struct models {
    struct arena arena;
    struct buf text[2];
    const struct json *model[2];
};

static const char *const bases[] = {"gpt2", "spm-legacy"};

static void models_init(struct models *m)
{
    struct err e;

    *m = (struct models){0};
    for (int i = 0; i < 2; i++) {
        const struct json *root;
        char path[512];

        snprintf(path, sizeof(path), "%s/tokens/tiny-%s/tokenizer.json", RG_TEST_DATA, bases[i]);
        m->text[i] = kit_file(path);
        cr_assert_eq(json_parse(&m->arena, buf_str(&m->text[i]), &root, &e), 0, "%s", e.text);
        m->model[i] = json_get(root, "model");
    }
}

static void models_done(struct models *m)
{
    arena_done(&m->arena);
    buf_done(&m->text[0]);
    buf_done(&m->text[1]);
}

static void write_model(struct json_out *o, const struct json *base, const struct json *members)
{
    json_out_key(o, "model");
    json_out_obj(o);
    for (uint32_t i = 0; i < base->n; i++) {
        struct str key = json_string(&base->members[i].key);

        if (json_get_str(members, key))
            continue;
        json_out_key_str(o, key);
        json_out_value(o, &base->members[i].value);
    }
    for (uint32_t i = 0; i < members->n; i++) {
        json_out_key_str(o, json_string(&members->members[i].key));
        json_out_value(o, &members->members[i].value);
    }
    json_out_end_obj(o);
}

static struct tokenizer *build(const struct models *m, const struct json *line)
{
    static const char *const parts[] = {"added_tokens", "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder"};
    bool spm = str_eq_c(json_string(json_get(line, "model")), "tiny-spm-legacy");
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    struct tokenizer *t;
    struct err e;

    json_out_obj(&o);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        json_out_key(&o, parts[i]);
        json_out_value(&o, json_get(line, parts[i]));
    }
    write_model(&o, m->model[spm], json_get(line, "model_members"));
    json_out_end_obj(&o);
    cr_assert_eq(tokenizer_parse(buf_str(&text), &t, &e), 0, "%s", e.text);
    buf_done(&text);
    return t;
}

static void same_ids(const struct json *want, const struct token_vec *got, unsigned number,
                     struct str text)
{
    bool same = want->n == got->n;

    for (uint32_t i = 0; same && i < want->n; i++) {
        int64_t id;

        same = json_to_i64(&want->items[i], &id) == 0 && id == got->at[i];
    }
    cr_expect(same, "line %u: %.*s", number, (int)text.len, text.p);
}

static void check_encode(struct encoder *enc, const struct json *c, unsigned number)
{
    struct str text = json_string(json_get(c, "text"));

    for (int special = 0; special < 2; special++) {
        struct token_vec ids = kit_encode(enc, text, special);

        same_ids(json_get(c, special ? "ids_special" : "ids"), &ids, number, text);
        vec_done(&ids);
    }
}

/* Checks decoding as a whole and id by id. */
static void check_decode(const struct tokenizer *t, const struct json *c, unsigned number)
{
    const struct json *list = json_get(c, "ids");
    bool skip = json_is_true(json_get(c, "skip_special_tokens"));
    struct str want = json_string(json_get(c, "text"));
    struct detok *d = detok_new(t, skip);
    struct buf whole = {0}, pieces = {0};
    struct token_vec ids = {0};

    for (uint32_t i = 0; i < list->n; i++) {
        int64_t id = -1;

        json_to_i64(&list->items[i], &id);
        *vec_push(&ids) = (int32_t)id;
        detok_feed(d, (int32_t)id, &pieces);
    }
    detok_finish(d, &pieces);
    tokenizer_decode(t, ids.at, ids.n, skip, &whole);
    cr_expect(str_eq(buf_str(&whole), want), "line %u: %.*s", number, (int)want.len, want.p);
    cr_expect(str_eq(buf_str(&pieces), want), "line %u: %.*s", number, (int)want.len, want.p);
    detok_free(d);
    buf_done(&whole);
    buf_done(&pieces);
    vec_done(&ids);
}

static void check_line(const struct models *m, struct str text, unsigned number)
{
    const struct json *line, *encode, *decode;
    struct arena a = {0};
    struct tokenizer *t;
    struct encoder *enc;
    struct err e;

    cr_assert_eq(json_parse(&a, text, &line, &e), 0, "%s", e.text);
    t = build(m, line);
    enc = encoder_new(t);
    encode = json_get(line, "encode");
    decode = json_get(line, "decode");
    for (uint32_t i = 0; i < encode->n; i++)
        check_encode(enc, &encode->items[i], number);
    for (uint32_t i = 0; i < decode->n; i++)
        check_decode(t, &decode->items[i], number);
    encoder_free(enc);
    tokenizer_free(t);
    arena_done(&a);
}

TEST(pipelines, equal_the_reference)
{
    struct buf file = kit_file(RG_TEST_DATA "/tokens/pipelines.jsonl");
    struct models m;
    unsigned number = 0;

    models_init(&m);
    for (size_t at = 0; at < file.len;) {
        size_t end = str_find(buf_str(&file), STR("\n"), at);

        check_line(&m, str_sub(buf_str(&file), at, end - at), ++number);
        at = end + 1;
    }
    cr_assert_gt(number, 100);
    models_done(&m);
    buf_done(&file);
}
