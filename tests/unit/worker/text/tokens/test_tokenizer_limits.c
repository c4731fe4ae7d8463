/* A tokenizer.json is untrusted. For any content, loading and encoding end soon, within the memory
 * budget, with an error that names the part, and can be cancelled. */
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/cancel.h"
#include "common/base/vec.h"
#include "tokens_kit.h"
#include "worker/text/tokens/onig.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

#define BPE                                                                              \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"Q\":0,\"a\":1,\"<unk>\":2},\"merges\":[]," \
    "\"unk_token\":\"<unk>\"}"

/* Loads {members, model}. Returns NULL and the error on failure. */
static struct tokenizer *load(const char *members, const char *model, struct err *e)
{
    struct tokenizer *t = NULL;
    struct buf json = {0};

    buf_printf(&json, "{%s%s%s}", members, *members ? "," : "", model);
    if (tokenizer_parse(buf_str(&json), &t, e) != 0)
        t = NULL;
    buf_done(&json);
    return t;
}

static void expect_refused(const char *members, const char *model, const char *part)
{
    struct err e = {0};
    struct tokenizer *t = load(members, model, &e);

    cr_expect_null(t, "%s", part);
    cr_expect(strstr(e.text, part), "%s is not in: %s", part, e.text);
    tokenizer_free(t);
}

/* Encodes a text. Returns 1, or 0 if it is refused with an error that contains `part`. */
static int encode(const char *members, const char *model, struct str text, const char *part)
{
    struct err e = {0};
    struct tokenizer *t = load(members, model, &e);
    struct token_vec ids = {0};
    struct encoder *enc;
    int rc;

    cr_assert_not_null(t, "%s", e.text);
    enc = encoder_new(t);
    rc = encoder_encode(enc, text, false, &ids, &e);
    if (rc != 0)
        cr_expect(ids.n == 0 && strstr(e.text, part), "%s is not in: %s", part, e.text);
    vec_done(&ids);
    encoder_free(enc);
    tokenizer_free(t);
    return rc == 0;
}

/* Makes the text: before, n times `item` with commas between, after. */
static void repeat(struct buf *b, const char *before, const char *item, unsigned n,
                   const char *after)
{
    buf_puts(b, before);
    for (unsigned i = 0; i < n; i++)
        buf_printf(b, "%s%s", i ? "," : "", item);
    buf_puts(b, after);
    buf_add_c(b, 0);
}

TEST(tokenizer_limits, ids_given_twice_are_refused_by_name)
{
    expect_refused(
        "", "\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"yy\":5,\"z\":5},\"merges\":[]}",
        "\"yy\" and \"z\" the same id 5");
    expect_refused(
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"}",
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0,\"ab\":1},\"merges\":[\"a b\"]}",
        "the same id 0");
    expect_refused("", "\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":-1},\"merges\":[]}", "id -1");
    expect_refused("", "\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":99999999999},\"merges\":[]}",
                   "id 99999999999");
}

TEST(tokenizer_limits, rules_that_double_the_text_end_at_the_budget)
{
    struct buf b = {0};

    repeat(&b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[",
           "{\"type\":\"Replace\",\"pattern\":{\"String\":\"Q\"},\"content\":\"QQ\"}", 34, "]}");
    cr_expect_eq(encode(b.p, BPE, STR("Q"), "normalizer: step 2"), 0);
    cr_expect_eq(encode(b.p, BPE, STR("a"), ""), 1);

    buf_clear(&b);
    repeat(&b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[",
           "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\"},\"content\":\"QQ\"}", 34, "]}");
    cr_expect_eq(encode(b.p, BPE, STR("Q"), "normalizer: step 1"), 0);

    buf_clear(&b);
    repeat(&b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[",
           "{\"type\":\"ByteLevel\"}", 34, "]}");
    cr_expect_eq(encode(b.p, BPE, STR("\xc3\xa9"), "(ByteLevel)"), 0);

    buf_clear(&b);
    repeat(&b, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
           "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", 34, "]}");
    cr_expect_eq(encode(b.p, BPE, STR("\xc3\xa9"), "pre_tokenizer: stage"), 0);

    buf_clear(&b);
    repeat(
        &b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[",
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"Q\"},\"content\":\"QQ\"}", 34,
        "]},\"added_tokens\":[{\"id\":9,\"content\":\"Q\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":true,\"special\":false}]");
    expect_refused(b.p, BPE, "normalizer: step 2");
    buf_done(&b);
}

TEST(tokenizer_limits, decoders_that_make_much_of_little_are_refused)
{
    struct buf b = {0};

    repeat(&b, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[",
           "{\"type\":\"Replace\",\"pattern\":{\"String\":\"Q\"},\"content\":\"QQ\"}", 34, "]}");
    expect_refused(b.p, BPE, "decoder: step 13 (Replace)");
    buf_clear(&b);
    repeat(&b, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[", "{\"type\":\"Fuse\"}", 300,
           "]}");
    expect_refused(b.p, BPE, "decoder: more than 256 steps");
    expect_refused(
        "\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1000000}", BPE,
        "stop");
    buf_done(&b);
}

TEST(tokenizer_limits, parts_without_end_are_refused)
{
    struct buf b = {0}, token = {0};

    repeat(&b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", "{\"type\":\"NFC\"}", 300,
           "]}");
    expect_refused(b.p, BPE, "normalizer: more than 256 steps");
    buf_clear(&b);
    repeat(&b, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
           "{\"type\":\"WhitespaceSplit\"}", 300, "]}");
    expect_refused(b.p, BPE, "pre_tokenizer: more than 256 stages");
    buf_clear(&b);
    repeat(&b,
           "\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":{},\"single\":[",
           "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", 5000, "]}");
    expect_refused(b.p, BPE, "post_processor: more than 4096 ids");
    for (unsigned i = 0; i < 2000; i++)
        buf_add_c(&token, 'x');
    buf_clear(&b);
    buf_printf(
        &b,
        "\"added_tokens\":[{\"id\":9,\"content\":\"%.*s\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":false}]",
        (int)token.len, token.p);
    buf_add_c(&b, 0);
    expect_refused(b.p, BPE, "added_tokens");
    buf_clear(&b);
    buf_printf(&b,
               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],"
               "\"continuing_subword_prefix\":\"%.*s\"}",
               (int)token.len, token.p);
    buf_add_c(&b, 0);
    expect_refused("", b.p, "continuing_subword_prefix");
    buf_clear(&b);
    repeat(&b,
           "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,"
           "\"pattern\":{\"Regex\":\"",
           "\\\\p{L}+", 2000, "\"}}");
    expect_refused(b.p, BPE, "regular expression");
    buf_done(&b);
    buf_done(&token);
}

/* Patterns that backtrack exponentially, or read the rest of the text at each position. */
TEST(tokenizer_limits, catastrophic_patterns_end)
{
    static const char *const patterns[] = {
        "(a+)+b",
        "(a|a)+b",
        "(a|aa)+b",
        "(?:a*)*b",
        "a*a*a*a*a*b",
        "(.*)*x",
        "[a-z]+[0-9]",
        "a*+b",
        "(?:a?){50}a{50}b",
        "(?=(a+)+b)a",
        "(?<!a)(a+)+b",
        "a{1,5000}b",
        "(?>a+)b|(?>a+)c|(?>a+)d",
        "(a+a+)+b",
    };
    struct buf b = {0}, text = {0};

    for (unsigned i = 0; i < 60000; i++)
        buf_add_c(&text, 'a');
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        buf_clear(&b);
        buf_printf(
            &b,
            "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"invert\":false,"
            "\"pattern\":{\"Regex\":\"%s\"}}",
            patterns[i]);
        buf_add_c(&b, 0);
        (void)encode(b.p, BPE, buf_str(&text), "pre_tokenizer: stage 1");
    }
    cr_expect_eq(
        encode("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"invert\":false,"
               "\"pattern\":{\"Regex\":\"(a|a)+[bc]\"}}",
               BPE, buf_str(&text), "takes more steps than its budget"),
        0);
    buf_done(&b);
    buf_done(&text);
}

/* Tokens that begin with a thousand others, or need a thousand merges in sequence. */
TEST(tokenizer_limits, rows_of_tokens_end)
{
    struct buf b = {0}, merges = {0}, text = {0}, uni = {0};

    buf_puts(&b, "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    buf_puts(&uni, "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0]");
    for (unsigned i = 0; i < 3000; i++) {
        buf_add_c(&text, 'a');
        buf_printf(&b, "%s\"%.*s\":%u", i ? "," : "", (int)text.len, text.p, i);
        buf_printf(&uni, ",[\"%.*s\",-%u]", (int)text.len, text.p, i + 1);
        if (i)
            buf_printf(&merges, "%s[\"%.*s\",\"a\"]", i > 1 ? "," : "", (int)i, text.p);
    }
    buf_printf(&b, "},\"merges\":[%.*s]}", (int)merges.len, merges.p);
    buf_add_c(&b, 0);
    buf_puts(&uni, "]}");
    buf_add_c(&uni, 0);
    while (text.len < 100000)
        buf_puts(&text, text.len % 5000 ? "a" : "\xc3\xa9");
    (void)encode(
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}",
        b.p, buf_str(&text), "model: a word");
    (void)encode("", uni.p, buf_str(&text), "model: a word");
    buf_done(&b);
    buf_done(&uni);
    buf_done(&merges);
    buf_done(&text);
}

static atomic_bool cancelled;

static void *cancel(void *arg)
{
    (void)arg;
    atomic_store(&cancelled, true);
    return NULL;
}

TEST(tokenizer_limits, encoding_stops_when_it_is_cancelled)
{
    static const char *const members[] = {
        "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"invert\":false,"
        "\"pattern\":{\"Regex\":\"(a+)+b\"}}",
        "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"invert\":false,"
        "\"pattern\":{\"Regex\":\"[a-z]+[0-9]\"}}",
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"a\"}",
        "",
    };
    struct buf text = {0};

    for (unsigned i = 0; i < 20000000; i++)
        buf_add_c(&text, 'a');
    cancel_flag = &cancelled;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        pthread_t other;
        struct err e = {0};
        struct tokenizer *t = load(members[i], BPE, &e);
        struct encoder *enc = encoder_new(t);
        struct token_vec ids = {0};

        cr_assert_eq(pthread_create(&other, NULL, cancel, NULL), 0);
        cr_expect_eq(encoder_encode(enc, buf_str(&text), false, &ids, &e), -1, "%s", members[i]);
        cr_expect_eq(e.kind, ERR_CANCELLED, "%s: %s", members[i], e.text);
        cr_assert_eq(pthread_join(other, NULL), 0);
        atomic_store(&cancelled, false);
        vec_done(&ids);
        encoder_free(enc);
        tokenizer_free(t);
    }
    cancel_flag = NULL;
    buf_done(&text);
}

/* Writes all matches of a pattern in a text as "start-end ". */
static void find_all(const struct regex *r, size_t reach, struct str text, struct buf *out)
{
    struct regex_scratch *s = regex_scratch_new();
    size_t from = 0, start, end;

    regex_scratch_reach(s, reach);
    while (from <= text.len && regex_find(r, s, text, from, &start, &end) == 1) {
        buf_printf(out, "%zu-%zu ", start, end);
        from = MAX_OF(end, from + 1);
        while (from < text.len && ((unsigned char)text.p[from] & 0xc0) == 0x80)
            from++;
    }
    regex_scratch_free(s);
}

/* A search that reads a few bytes at first has the same result as one that reads all. */
TEST(tokenizer_limits, searches_in_small_steps_find_the_same)
{
    static const char *const patterns[] = {
        "a+b",           "a*",      "\\s+(?!\\S)", "^a",         "a$",
        "(?<=a)b+",      "(?<!a)b", "a|ab|abc",    "[^a]+",      "\\bab\\b",
        "\\Z",           "(?i)AB+", "(?!x)",       "(?:ab)*?b",  "\xc3\xa9+",
        "\\s*[\\r\\n]+", "(a+)+b",  "x{2,3}",      "a(?=b|\\z)", "\\Aa+",
        "\\z",
    };
    static const char *const pieces[] = {"a",        "b", "ab",   "\n", " ",
                                         "\xc3\xa9", "x", "\r\n", "  ", "1"};
    unsigned seed = 5;

    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct buf translated = {0};
        struct onig_shape shape = {0};
        struct regex *r = NULL;
        struct err e;

        cr_assert_eq(onig_translate(str_cstr(patterns[i]), &translated, &shape, &e), 0, "%s",
                     e.text);
        cr_assert_eq(regex_new(buf_str(&translated), &r, &e), 0, "%s", e.text);
        for (int round = 0; round < 300; round++) {
            struct buf text = {0}, whole = {0}, steps = {0};

            for (unsigned n = kit_random(&seed, 40); n > 0; n--)
                buf_puts(&text, pieces[kit_random(&seed, ARRAY_LEN(pieces))]);
            find_all(r, 1 << 20, buf_str(&text), &whole);
            find_all(r, 1 + kit_random(&seed, 6), buf_str(&text), &steps);
            cr_expect(str_eq(buf_str(&whole), buf_str(&steps)), "%s in \"%.*s\":\n%.*s\n%.*s",
                      patterns[i], (int)text.len, text.p, (int)whole.len, whole.p, (int)steps.len,
                      steps.p);
            buf_done(&text);
            buf_done(&whole);
            buf_done(&steps);
        }
        regex_free(r);
        charset_done(&shape.set);
        buf_done(&translated);
    }
}
