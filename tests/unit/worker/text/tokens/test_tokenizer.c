#include <malloc.h>

#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "tokens_kit.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

#define BYTES \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static const char *const texts[] = {
    "",
    "hello world",
    "  Привет,\tмир!\r\n\r\n",
    "日本語のテキスト 한국어 中文。",
    "👩‍👩‍👧 e\xcc\x81 ﬁ ²³ İ",
    "def f(x):\n    return x**2  # 'twas I'LL\n",
    "<|im_start|>user\nhi<|im_end|>",
    "a\xcd\x85\xe1\xbe\x82",
};

static const char *const tinies[] = {
    "qwen3",  "llama3", "o200k", "kimi",       "dsv3",          "dscoder",    "gpt2",
    "falcon", "flags",  "norm",  "spm-legacy", "spm-metaspace", "spm-always", "spm-gemma"};

static void decode(const struct tokenizer *t, const struct token_vec *ids, struct buf *out)
{
    buf_clear(out);
    tokenizer_decode(t, ids->at, ids->n, false, out);
}

TEST(tokenizer, builtin_is_bytes)
{
    struct tokenizer *t = tokenizer_builtin();
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = kit_encode(enc, STR("A\xc3\xa9<|im_end|>"), true);
    struct buf out = {0};

    cr_assert_eq(ids.n, 4);
    cr_assert(ids.at[0] == 'A' && ids.at[1] == 0xc3 && ids.at[2] == 0xa9 && ids.at[3] == 257);
    cr_assert_eq(tokenizer_vocab_size(t), 259);
    cr_assert_eq(tokenizer_id(t, STR("<|im_start|>")), 256);
    cr_assert(tokenizer_is_special(t, 258) && !tokenizer_is_special(t, 0));
    cr_assert(tokenizer_byte_level(t));
    cr_assert(str_eq(tokenizer_text(t, 0xc3), STR("\xc3")));
    cr_assert(str_eq(tokenizer_piece(t, ' '), STR("\xc4\xa0")));
    cr_assert_null(tokenizer_text(t, 259).p);
    cr_assert_null(tokenizer_text(t, -1).p);
    decode(t, &ids, &out);
    cr_assert(str_eq(buf_str(&out), STR("A\xc3\xa9<|im_end|>")));
    buf_clear(&out);
    tokenizer_decode(t, ids.at, ids.n, true, &out);
    cr_assert(str_eq(buf_str(&out), STR("A\xc3\xa9")));
    buf_done(&out);
    vec_done(&ids);
    encoder_free(enc);
    tokenizer_free(t);
}

/* Ids are below the size of the vocabulary. A second run with the filled cache has the same result.
 * Byte-level tokenizers without a normalizer return the text. */
TEST(tokenizer, round_trips)
{
    struct buf out = {0};

    for (size_t i = 0; i < ARRAY_LEN(tinies); i++) {
        struct tokenizer *t = kit_tiny(tinies[i]);
        struct encoder *enc = encoder_new(t);
        bool exact = tokenizer_byte_level(t) && strcmp(tinies[i], "norm") != 0 &&
                     strcmp(tinies[i], "flags") != 0 && strcmp(tinies[i], "qwen3") != 0;

        for (size_t k = 0; k < ARRAY_LEN(texts); k++) {
            struct token_vec ids = kit_encode(enc, str_cstr(texts[k]), false);
            struct token_vec again = kit_encode(enc, str_cstr(texts[k]), false);

            cr_assert_eq(ids.n, again.n);
            for (size_t j = 0; j < ids.n; j++) {
                cr_assert(ids.at[j] == again.at[j] && ids.at[j] >= 0);
                cr_assert_lt((size_t)ids.at[j], tokenizer_vocab_size(t));
            }
            decode(t, &ids, &out);
            cr_assert(utf8_valid(buf_str(&out)));
            cr_expect(!exact || str_eq(buf_str(&out), str_cstr(texts[k])), "%s: %s", tinies[i],
                      texts[k]);
            vec_done(&ids);
            vec_done(&again);
        }
        encoder_free(enc);
        tokenizer_free(t);
    }
    buf_done(&out);
}

/* Random ids, most of which are broken text: decoding id by id equals decoding as a whole. In a
 * byte-level stream at most three bytes wait. */
TEST(tokenizer, detok_equals_decode)
{
    unsigned seed = 1;

    for (size_t i = 0; i < ARRAY_LEN(tinies); i++) {
        struct tokenizer *t = kit_tiny(tinies[i]);

        for (int round = 0; round < 300; round++) {
            struct detok *d = detok_new(t, round % 2);
            struct buf whole = {0}, pieces = {0};
            size_t fed = 0, n = kit_random(&seed, 12);
            int32_t ids[12];

            for (size_t k = 0; k < n; k++) {
                ids[k] = (int32_t)kit_random(&seed, round % 3 ? 256 : 1480);
                if (tokenizer_byte_level(t) && !(round % 2 && tokenizer_is_special(t, ids[k])))
                    fed += tokenizer_text(t, ids[k]).len;
                detok_feed(d, ids[k], &pieces);
                if (tokenizer_byte_level(t))
                    cr_assert_leq(fed, pieces.len + 3);
            }
            detok_finish(d, &pieces);
            tokenizer_decode(t, ids, n, round % 2, &whole);
            cr_assert(str_eq(buf_str(&whole), buf_str(&pieces)), "%s", tinies[i]);
            detok_free(d);
            buf_done(&whole);
            buf_done(&pieces);
        }
        tokenizer_free(t);
    }
}

/* The same for random cuts, with plain ids decoded at once. Plain ids are neither added tokens nor
 * parts of a character. */
TEST(tokenizer, plain_ids_at_once_equal_id_by_id)
{
    unsigned seed = 3;
    size_t at_once = 0;

    for (size_t i = 0; i < ARRAY_LEN(tinies); i++) {
        struct tokenizer *t = kit_tiny(tinies[i]);

        for (int round = 0; round < 300; round++) {
            struct detok *one = detok_new(t, round % 2), *many = detok_new(t, round % 2);
            struct buf by_one = {0}, by_many = {0};
            int32_t ids[24];

            for (size_t k = 0; k < ARRAY_LEN(ids); k++) {
                ids[k] = (int32_t)kit_random(&seed, round % 4 ? 1480 : 256) - 1;
                detok_feed(one, ids[k], &by_one);
            }
            for (size_t k = 0; k < ARRAY_LEN(ids);) {
                size_t until = by_many.len + kit_random(&seed, 12), had = by_many.len;
                size_t n = detok_feed_plain(many, ids + k, kit_random(&seed, 25 - (unsigned)k),
                                            until, &by_many);

                cr_assert_leq(n, tokenizer_plain(t, ids + k, ARRAY_LEN(ids) - k));
                for (size_t p = k; p < k + n; p++) {
                    cr_assert_lt(had, until);
                    cr_assert(!tokenizer_is_added(t, ids[p]) && tokenizer_byte_level(t));
                    had += tokenizer_text(t, ids[p]).len;
                }
                cr_assert_eq(had, by_many.len);
                at_once += n;
                k += n;
                if (k < ARRAY_LEN(ids))
                    detok_feed(many, ids[k++], &by_many);
            }
            detok_finish(one, &by_one);
            detok_finish(many, &by_many);
            cr_assert(str_eq(buf_str(&by_one), buf_str(&by_many)), "%s", tinies[i]);
            detok_free(one);
            detok_free(many);
            buf_done(&by_one);
            buf_done(&by_many);
        }
        tokenizer_free(t);
    }
    cr_assert_gt(at_once, 1000);
}

TEST(tokenizer, broken_utf8_becomes_replacements)
{
    struct tokenizer *t = tokenizer_builtin();

    static const struct {
        int32_t ids[6];
        size_t n;
        const char *want;
    } cases[] = {
        {{0xe2, 0x82, 0xac}, 3, "€"},
        {{0xe2, 0x82}, 2, "\xef\xbf\xbd"},
        {{0xe2, 0x82, 'a'},
         3,
         "\xef\xbf\xbd"
         "a"},
        {{0xf0, 0x9f, 0x98, 0xe2, 0x82, 0xac}, 6, "\xef\xbf\xbd€"},
        {{0xed, 0xa0, 0x80}, 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {{0xc0, 0x80, 0xff}, 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {{'a', 999, 'b'}, 3, "ab"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf out = {0};

        tokenizer_decode(t, cases[i].ids, cases[i].n, false, &out);
        cr_expect(str_eq(buf_str(&out), str_cstr(cases[i].want)), "case %zu", i);
        buf_done(&out);
    }
    tokenizer_free(t);
}

TEST(tokenizer, refuses_by_name)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "model WordLevel"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "model WordPiece"},
        {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}", "dropout"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "-1"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "merge 1"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "merge a a a"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\"}}", "precompiled_charsmap"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"}]}}",
         "normalizer Nmt"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}",
         "pre_tokenizer UnicodeScripts"},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "decoder CTC"},
        {"{" MODEL ",\"decoder\":{\"type\":\"WordPiece\"}}", "decoder WordPiece"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Odd\"}}", "post_processor Odd"},
        {"{" MODEL ",\"version\":\"2.0\"}", "version"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a)\\\\1\"},"
         "\"behavior\":\"Isolated\",\"invert\":false}}",
         "escape"},
        {"{" MODEL
         ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:\xc3\xa9)\"},"
         "\"behavior\":\"Isolated\",\"invert\":false}}",
         "case"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
         "\"behavior\":\"Sideways\",\"invert\":false}}",
         "behavior"},
        {"[]", "not an object"},
        {"{", "byte"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};

        cr_expect_eq(tokenizer_parse(str_cstr(cases[i].json), &t, &e), -1, "%s", cases[i].json);
        cr_expect(strstr(e.text, cases[i].says), "%s: %s", cases[i].json, e.text);
        tokenizer_free(t);
    }
}

TEST(tokenizer, ids_of_added_tokens_follow_the_library)
{
    struct tokenizer *t = kit_parse(
        "{" MODEL ",\"truncation\":{\"max_length\":1},\"added_tokens\":["
        "{\"id\":90,\"content\":\"<x>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":true},"
        "{\"id\":91,\"content\":\"ab\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":false},"
        "{\"id\":92,\"content\":\"<y>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":true,\"special\":false}]}");

    cr_assert_eq(tokenizer_id(t, STR("<x>")), 3);
    cr_assert_eq(tokenizer_id(t, STR("ab")), 2);
    cr_assert_eq(tokenizer_id(t, STR("<y>")), 4);
    cr_assert_eq(tokenizer_id(t, STR("<z>")), -1);
    cr_assert_eq(tokenizer_added_count(t), 3);
    cr_assert_eq(tokenizer_added(t, 2)->id, 4);
    cr_assert_null(tokenizer_added(t, 3));
    cr_assert(tokenizer_is_special(t, 3) && !tokenizer_is_special(t, 4));
    cr_assert(strstr(tokenizer_remarks(t), "truncation"));
    tokenizer_free(t);
}

/* Returns the used bytes of the heap. A sanitizer's heap is not counted. */
static size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* No copy of a long text's normal form or of the model's input stays in memory. */
#ifdef __SANITIZE_ADDRESS__
enum { WORDS = 1 << 16 };
#else
enum { WORDS = 1 << 19 };
#endif

TEST(tokenizer, an_encoder_keeps_nothing_of_long_texts)
{
    struct tokenizer *t = kit_parse("{" MODEL ",\"normalizer\":{\"type\":\"Lowercase\"},"
                                    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
                                    "\"\xe2\x96\x81\",\"add_prefix_space\":true}}");
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = kit_encode(enc, STR("AB A"), false);
    struct buf text = {0};
    struct err e;
    size_t before, at = 0;
    int rc = 0;

    cr_assert_eq(ids.n, 2);
    vec_done(&ids);
    for (size_t i = 0; i < WORDS; i++)
        buf_puts(&text, "AB ");
    before = heap_bytes();
    ids = kit_encode(enc, buf_str(&text), false);
    cr_assert_eq(ids.n, WORDS);
    vec_done(&ids);
    cr_expect_leq(heap_bytes(), before + text.len / 2);
    while (rc == 0)
        rc = encoder_encode_step(enc, buf_str(&text), &at, &ids, &e);
    cr_assert_eq(rc, 1);
    vec_done(&ids);
    cr_expect_leq(heap_bytes(), before + text.len / 2);
    buf_done(&text);
    encoder_free(enc);
    tokenizer_free(t);
}

TEST(tokenizer, absent_unk_fails_only_when_needed)
{
    struct tokenizer *t = kit_parse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],"
                                    "\"unk_token\":\"<unk>\"}}");
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = kit_encode(enc, STR("aaa"), false);
    struct err e = {0};

    cr_assert_eq(ids.n, 3);
    cr_assert_eq(encoder_encode(enc, STR("aab"), false, &ids, &e), -1);
    cr_assert_eq(ids.n, 3);
    cr_assert(strstr(e.text, "unk_token"));
    cr_assert_eq(encoder_encode(enc, STR("a\xff"), false, &ids, &e), -1);
    cr_assert_eq(e.kind, ERR_INVALID);
    vec_done(&ids);
    encoder_free(enc);
    tokenizer_free(t);
}

#define ADDED(id, content, lstrip, rstrip)                                              \
    "{\"id\":" id ",\"content\":\"" content "\",\"special\":true,\"normalized\":false," \
    "\"single_word\":false,\"lstrip\":" lstrip ",\"rstrip\":" rstrip "}"

TEST(encoder, parts_give_what_the_whole_gives)
{
    struct tokenizer *t =
        kit_parse("{\"added_tokens\":[" ADDED("4", "<s>", "false", "false") "," ADDED(
            "5", "<l>", "true",
            "false") "," ADDED("6", "<r>", "false",
                               "true") "],"
                                       "\"model\":{\"vocab\":{\"a\":0,\"b\":1,\" "
                                       "\":2,\"ab\":3},\"merges\":[\"a b\"]}}");
    static const char *const pieces[] = {"ab a", "<s>", "  ", "<l>", "<r>", " ", "b<s>ab"};
    struct encoder *enc = encoder_new(t);
    struct token_vec parts = {0}, whole;
    struct buf text = {0};
    struct err e = {0};
    size_t at = 0, n = 1;
    int rc;

    for (uint32_t x = 1; text.len < 200000; x = x * 1664525 + 1013904223)
        buf_puts(&text, pieces[(x >> 16) % 7]);
    whole = kit_encode(enc, buf_str(&text), false);
    while ((rc = encoder_encode_step(enc, buf_str(&text), &at, &parts, &e)) == 0)
        n++;
    cr_assert_eq(rc, 1, "%s", e.text);
    cr_assert_gt(n, 4);
    cr_assert_eq(parts.n, whole.n);
    cr_assert_eq(memcmp(parts.at, whole.at, whole.n * sizeof(*whole.at)), 0);
    vec_done(&parts);
    vec_done(&whole);
    buf_done(&text);
    encoder_free(enc);
    tokenizer_free(t);
}

/* --- against a plain merge loop --- */

/* Merges the lowest rank first, the leftmost first, by searching all merges: quadratic and simple.
 */
static size_t merge_plainly(const struct tokenizer *t, const struct json *merges, int32_t *ids,
                            size_t n)
{
    for (uint32_t rank = 0; rank < merges->n;) {
        struct str text = json_string(&merges->items[rank]);
        size_t blank = str_find(text, STR(" "), 0), out = 0;
        struct str left = str_sub(text, 0, blank), right = str_sub(text, blank + 1, text.len);
        int32_t l = tokenizer_id(t, left), r = tokenizer_id(t, right);
        bool merged = false;
        char joined[256];

        memcpy(joined, left.p, left.len);
        memcpy(joined + left.len, right.p, right.len);
        for (size_t i = 0; i < n; i++) {
            if (i + 1 < n && ids[i] == l && ids[i + 1] == r) {
                ids[out++] = tokenizer_id(t, str_of(joined, left.len + right.len));
                i++;
                merged = true;
            } else {
                ids[out++] = ids[i];
            }
        }
        n = out;
        /* if the list is unordered, a merge can make pairs of lower rank: start again */
        rank = merged ? 0 : rank + 1;
    }
    return n;
}

TEST(bpe, equals_a_plain_merge_loop)
{
    static const char letters[] = "etaoinshr dl";
    struct buf file = kit_file(RG_TEST_DATA "/tokens/tiny-gpt2/tokenizer.json"), json = {0};
    struct arena a = {0};
    const struct json *root, *merges;
    struct json_out o = json_out_to(&json);
    struct tokenizer *t;
    struct encoder *enc;
    unsigned seed = 7;
    struct err e;

    cr_assert_eq(json_parse(&a, buf_str(&file), &root, &e), 0);
    merges = json_get(json_get(root, "model"), "merges");
    json_out_obj(&o);
    json_out_key(&o, "model");
    json_out_value(&o, json_get(root, "model"));
    json_out_key(&o, "pre_tokenizer");
    json_out_raw(&o,
                 STR("{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"));
    json_out_end_obj(&o);
    cr_assert_eq(tokenizer_parse(buf_str(&json), &t, &e), 0, "%s", e.text);
    enc = encoder_new(t);
    for (int round = 0; round < 60; round++) {
        size_t n = 1 + kit_random(&seed, round % 2 ? 40 : 200), plain;
        struct token_vec ids;
        int32_t want[256];
        char text[256];

        for (size_t i = 0; i < n; i++) {
            text[i] = letters[kit_random(&seed, sizeof(letters) - 1)];
            want[i] = tokenizer_id(t, text[i] == ' ' ? STR("\xc4\xa0") : str_of(&text[i], 1));
        }
        plain = merge_plainly(t, merges, want, n);
        ids = kit_encode(enc, str_of(text, n), false);
        cr_assert_eq(ids.n, plain, "%.*s", (int)n, text);
        cr_assert_eq(memcmp(ids.at, want, plain * sizeof(*want)), 0, "%.*s", (int)n, text);
        vec_done(&ids);
    }
    encoder_free(enc);
    tokenizer_free(t);
    arena_done(&a);
    buf_done(&file);
    buf_done(&json);
}

TEST(bpe, long_words)
{
    struct tokenizer *t = kit_tiny("qwen3");
    struct encoder *enc = encoder_new(t);
    struct buf text = {0}, out = {0};
    struct token_vec ids;
    unsigned seed = 3;

    for (int i = 0; i < 100000; i++)
        buf_add_c(&text, (char)('a' + kit_random(&seed, 26)));
    ids = kit_encode(enc, buf_str(&text), false);
    decode(t, &ids, &out);
    cr_assert(str_eq(buf_str(&out), buf_str(&text)));
    vec_done(&ids);
    buf_done(&text);
    buf_done(&out);
    encoder_free(enc);
    tokenizer_free(t);
}

static uint64_t fingerprint(const char *json)
{
    struct tokenizer *t = kit_parse(json);
    uint64_t h = tokenizer_fingerprint(t);

    tokenizer_free(t);
    return h;
}

/* Files with different spellings of the same tokenizer have one fingerprint. */
TEST(tokenizer, a_fingerprint_is_of_what_it_does)
{
    uint64_t same = fingerprint("{" MODEL "}");

    cr_expect_eq(
        fingerprint("{ \"version\" : \"1.0\", \"truncation\": null, \"model\": {\"merges\":[[\"a\","
                    "\"b\"]],\"fuse_unk\":false,\"vocab\":{\"ab\":2,\"b\":1,\"a\":0}}}"),
        same);
    cr_expect_neq(same, 0);
}

TEST(tokenizer, fingerprints_tell_everything_apart)
{
    static const char *const others[] = {
        "{" MODEL "}",
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":3},\"merges\":[\"a b\"]}}",
        "{\"model\":{\"vocab\":{\"a\":1,\"b\":0,\"ab\":2},\"merges\":[\"a b\"]}}",
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}}",
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a "
        "b\"],\"ignore_merges\":true}}",
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a "
        "b\"],\"unk_token\":\"a\"}}",
        "{" MODEL ",\"normalizer\":{\"type\":\"NFC\"}}",
        "{" MODEL ",\"normalizer\":{\"type\":\"NFD\"}}",
        "{" MODEL ",\"decoder\":{\"type\":\"ByteLevel\"}}",
        "{" MODEL "," BYTES "}",
        "{" MODEL ",\"added_tokens\":[{\"content\":\"<x>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":true}]}",
        "{" MODEL ",\"added_tokens\":[{\"content\":\"<x>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":false}]}",
        "{" MODEL ",\"added_tokens\":[{\"content\":\"<y>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":true}]}",
    };
    uint64_t seen[ARRAY_LEN(others)];

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        seen[i] = fingerprint(others[i]);
        for (size_t j = 0; j < i; j++)
            cr_expect_neq(seen[i], seen[j], "%s\n%s", others[i], others[j]);
    }
}

/* Fingerprints are stored: a program with a different algorithm would refuse all state folders. */
TEST(tokenizer, a_fingerprint_is_for_ever)
{
    struct tokenizer *t = tokenizer_builtin();

    cr_expect_eq(tokenizer_fingerprint(t), 0x68bd0a00420790fe, "%016llx",
                 (unsigned long long)tokenizer_fingerprint(t));
    tokenizer_free(t);
}
