/*
 * Compares the hand-written matchers of families with PCRE2 and the translated pattern. Tests
 * special cases of the translation against Oniguruma's results (from the reference library).
 */
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "tokens_kit.h"
#include "worker/text/tokens/normal_form.h"
#include "worker/text/tokens/normalizer.h"
#include "worker/text/tokens/onig.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/pretok.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/split_family.h"
#include "worker/text/tokens/unicode.h"

static void random_text(unsigned *seed, struct buf *out)
{
    static const char *const parts[] = {" ",      "  ",     "\n",      "\r\n",
                                        "\t",     "'s",     "'LL",     "'",
                                        "a",      "B",      "the",     "1",
                                        "23",     "4567",   "é",       "中",
                                        "文字",   "ǅ",      "ʰ",       "\u0301",
                                        "²",      "!",      "//",      "$",
                                        "_",      "\u00a0", "\u3000",  "\u200d",
                                        "👍",      "\u017f", "'\u017f", "⺀",
                                        "〇",     "ア",     "\x01",    "Ⅷ",
                                        "/",      "ъ",      "Ж",       "م",
                                        "\u0e31", "AZaz",   "@[`{",    "lettersWithoutAnEnd"};
    unsigned n = kit_random(seed, 14);

    buf_clear(out);
    for (unsigned i = 0; i < n; i++) {
        char c[4];

        if (kit_random(seed, 8) > 0)
            buf_puts(out, parts[kit_random(seed, ARRAY_LEN(parts))]);
        else
            buf_add(out, c, utf8_encode(c, kit_random(seed, 0xd800)));
    }
}

TEST(patterns, families_equal_pcre2)
{
    struct regex_scratch *scratch = regex_scratch_new();
    struct buf text = {0};
    unsigned seed = 11;

    for (size_t f = 0; family_at(f); f++) {
        struct str source = family_pattern(family_at(f));
        struct onig_shape shape = {0};
        struct buf translated = {0};
        struct regex *regex;
        struct err e;

        cr_assert_eq(onig_translate(source, &translated, &shape, &e), 0, "%s", e.text);
        cr_assert_eq(regex_new(buf_str(&translated), &regex, &e), 0, "%s", e.text);
        for (int round = 0; round < 4000; round++) {
            size_t at = 0, start, end;

            random_text(&seed, &text);
            while (at < text.len) {
                size_t mine = family_match(family_at(f), buf_str(&text), at);
                int rc = regex_find(regex, scratch, buf_str(&text), at, &start, &end);

                cr_assert_geq(rc, 0);
                if (rc == 0 || start > at)
                    cr_assert_eq(mine, SIZE_MAX, "%zu: %.*s", f, (int)text.len, text.p);
                else
                    cr_assert_eq(mine, end, "family %zu at %zu: %.*s", f, at, (int)text.len,
                                 text.p);
                at = mine == SIZE_MAX ? at + unicode_len(text.p[at]) : mine;
            }
        }
        regex_free(regex);
        charset_done(&shape.set);
        buf_done(&translated);
    }
    regex_scratch_free(scratch);
    buf_done(&text);
}

/* Appends a word in brackets. */
static int write_word(void *arg, struct str word, struct err *e)
{
    (void)e;
    buf_printf(arg, "[%.*s]", (int)word.len, word.p);
    return 0;
}

/* Makes a pre_tokenizer that splits at the pattern, then separates digits. */
static void parse_splits(struct arena *a, const char *around, struct str pattern,
                         struct pretok *ret)
{
    struct buf text = {0}, regex = {0};
    const struct json *v;
    struct err e = {0};

    buf_printf(&regex, "%s%.*s%s", *around ? "(?:" : "", (int)pattern.len, pattern.p,
               *around ? ")" : "");
    buf_puts(&text, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                    "\"Regex\":");
    json_write_string(&text, buf_str(&regex));
    buf_puts(&text, "},\"behavior\":\"Isolated\",\"invert\":false},"
                    "{\"type\":\"Digits\",\"individual_digits\":true}]}");
    cr_assert_eq(json_parse(a, buf_str(&text), &v, &e), 0, "%s", e.text);
    cr_assert_eq(pretok_parse(ret, v, &e), 0, "%s", e.text);
    buf_done(&text);
    buf_done(&regex);
}

static void run_splits(const struct pretok *p, struct regex_scratch *regex, struct str text,
                       struct buf *out)
{
    struct pretok_scratch s;
    struct err e = {0};

    pretok_scratch_init(&s, p, regex);
    buf_clear(out);
    cr_assert_eq(pretok_run(p, &s, (struct pretok_piece){text, 0}, write_word, out, &e), 0, "%s",
                 e.text);
    pretok_scratch_done(&s);
}

/* A pattern in a group is not recognized as a family's, so PCRE2 runs it. */
TEST(patterns, splits_by_families_equal_pcre2)
{
    struct regex_scratch *scratch = regex_scratch_new();
    struct buf text = {0}, mine = {0}, theirs = {0};
    struct arena a = {0};
    unsigned seed = 5;

    for (size_t f = 0; family_at(f); f++) {
        struct pretok by_hand, by_regex;

        parse_splits(&a, "", family_pattern(family_at(f)), &by_hand);
        parse_splits(&a, "()", family_pattern(family_at(f)), &by_regex);
        for (int round = 0; round < 2000; round++) {
            random_text(&seed, &text);
            run_splits(&by_hand, scratch, buf_str(&text), &mine);
            run_splits(&by_regex, scratch, buf_str(&text), &theirs);
            cr_assert(str_eq(buf_str(&mine), buf_str(&theirs)), "family %zu: %.*s, not %.*s", f,
                      (int)mine.len, mine.p, (int)theirs.len, theirs.p);
        }
        pretok_done(&by_hand);
        pretok_done(&by_regex);
    }
    regex_scratch_free(scratch);
    arena_done(&a);
    buf_done(&text);
    buf_done(&mine);
    buf_done(&theirs);
}

/* Replaces every match by '#'. */
static void mark(const char *pattern, const char *text, struct buf *out)
{
    struct pattern_walk w = {.text = str_cstr(text)};
    struct regex_scratch *scratch = regex_scratch_new();
    struct pattern *p;
    struct err e = {0};
    size_t done = 0;

    cr_assert_eq(pattern_regex(str_cstr(pattern), &p, &e), 0, "%s: %s", pattern, e.text);
    buf_clear(out);
    while (pattern_next(p, scratch, &w) == 1) {
        buf_add(out, text + done, w.start - done);
        buf_add_c(out, '#');
        done = w.end;
    }
    buf_puts(out, text + done);
    pattern_free(p);
    regex_scratch_free(scratch);
}

TEST(patterns, oniguruma_corners)
{
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        {"$", "a\nb\n", "a#\nb#\n#"},
        {"\\Z", "a\n", "a#\n#"},
        {"\\z", "a\n", "a\n#"},
        {"^", "a\nb\n", "#a\n#b\n"},
        {"\\b", "b a", "#b# #a#"},
        {"$", "", ""},
        {"a??", "aab", "#a#a#b#"},
        {"a{2}?", "aab", "#b#"},
        {"a{1,2}+", "aaaaa", "#"},
        {"a{,2}", "aaa", "##"},
        {"a{", "a{b", "#b"},
        {"a{x}", "aa{x}", "a#"},
        {"[a-z&&[^b]c]", "abcd", "#b##"},
        {"(?m:.)+", "a\nb", "#"},
        {".+", "a\nb", "#\n#"},
        {"\\h+", "xfFg09", "x#g#"},
        {"a(?i)b|c", "aBCcab", "#Cc#"},
        {"(?i:s)", "\xc5\xbf", "#"},
        {"(?i:[k-s])+", "kS\xe2\x84\xaax", "#x"},
        {"[\\w]", "\xc2\xb2", "\xc2\xb2"},
        {"\\w", "\xc2\xb2", "#"},
        {"\\p{^L}", "a1", "a#"},
        {"[[:punct:]]", "$a", "#a"},
        {"\\p{Punct}", "$a!", "$a#"},
        {"\\u0041|\\x{42}", "ABC", "##C"},
        {"(?#no)a", "ab", "#b"},
        {"(?x) a b # c", "ab", "#"},
        {"(?>a+)b", "aab", "#"},
        {"a++b", "aab", "#"},
        {"(?<n>a)", "a", "#"},
        {"[a\\-z]", "a-z", "###"},
        {"[-a]", "-b", "#b"},
        {"\\N", "a\n", "#\n"},
        {"\\O", "\n", "#"},
        {"(?<!a)b", "abb", "ab#"},
        {"x|", "axb", "#a#b#"},
    };
    struct buf out = {0};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        mark(cases[i].pattern, cases[i].text, &out);
        cr_expect(str_eq(buf_str(&out), str_cstr(cases[i].want)), "%s on %s: %.*s",
                  cases[i].pattern, cases[i].text, (int)out.len, out.p);
    }
    buf_done(&out);
}

/* Applies the normalizer Replace to a text. */
static void replaced(const char *pattern, const char *text, struct buf *out)
{
    struct normalizer_scratch s = {.regex = regex_scratch_new()};
    struct str now = str_cstr(text);
    struct normalizer n;
    const struct json *v;
    struct arena a = {0};
    struct err e = {0};
    size_t head = 0;

    buf_clear(out);
    buf_puts(out, "{\"type\":\"Replace\",\"content\":\"-\",\"pattern\":");
    buf_puts(out, pattern);
    buf_add_c(out, '}');
    cr_assert_eq(json_parse(&a, buf_str(out), &v, &e), 0, "%s", e.text);
    cr_assert_eq(normalizer_parse(&n, v, &e), 0, "%s: %s", pattern, e.text);
    cr_assert_eq(normalizer_apply(&n, &s, &now, &head, &e), 0, "%s: %s", pattern, e.text);
    buf_clear(out);
    buf_add_str(out, now);
    normalizer_done(&n);
    normalizer_scratch_done(&s);
    regex_scratch_free(s.regex);
    arena_done(&a);
}

/* An empty match counts, except at the end of the last match. Then the search continues after the
 * next character, which stays even if it would match. An empty text has no matches. */
TEST(normalizer, replaces_matches_of_nothing)
{
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        {"{\"Regex\":\"a*\"}", "baac", "-b-c-"},
        {"{\"Regex\":\"a*\"}", "aa", "-"},
        {"{\"Regex\":\"a*\"}", "aab", "-b-"},
        {"{\"Regex\":\"a?\"}", "aab", "--b-"},
        {"{\"Regex\":\"a*?\"}", "aa", "-a-a-"},
        {"{\"Regex\":\"a*\"}", "", ""},
        {"{\"Regex\":\"\"}", "ab", "-a-b-"},
        {"{\"Regex\":\"\"}", "", ""},
        {"{\"String\":\"\"}", "ab", "-a-b-"},
        {"{\"String\":\"\"}", "\xc3\xa9\xf0\x9f\x98\x80", "-\xc3\xa9-\xf0\x9f\x98\x80-"},
        {"{\"Regex\":\"x*\"}", "\xc3\xa9\xf0\x9f\x98\x80", "-\xc3\xa9-\xf0\x9f\x98\x80-"},
        {"{\"Regex\":\"\\\\s*\"}", " a  b", "-a-b-"},
        {"{\"Regex\":\"\\\\d*\"}", "1a23", "-a-"},
        {"{\"Regex\":\" *\"}", "a b", "-a-b-"},
        {"{\"Regex\":\" {0,2}\"}", "a   b", "-a--b-"},
        {"{\"Regex\":\"\\\\b\"}", "ab cd", "-ab- -cd-"},
        {"{\"Regex\":\"\\\\A\"}", "ab", "-ab"},
        {"{\"Regex\":\"^|b\"}", "ab\nb", "-a-\n-b"},
        {"{\"Regex\":\"$\"}", "ab", "ab-"},
        {"{\"Regex\":\"(?=b)\"}", "abb", "a-b-b"},
        {"{\"Regex\":\"(?<=b)\"}", "abb", "ab-b-"},
        {"{\"Regex\":\"(?<=b)|b\"}", "abb", "a-b-"},
        {"{\"Regex\":\"b|\"}", "abb", "-a--"},
        {"{\"Regex\":\"|b\"}", "ab", "-a-b-"},
    };
    struct buf out = {0};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        replaced(cases[i].pattern, cases[i].text, &out);
        cr_expect(str_eq_c(buf_str(&out), cases[i].want), "%s on \"%s\": %.*s", cases[i].pattern,
                  cases[i].text, (int)out.len, out.p);
    }
    buf_done(&out);
}

TEST(normal_form, forms)
{
    static const struct {
        enum normal_form form;
        const char *text, *want;
    } cases[] = {
        {NORMAL_C, "e\u0301", "é"},
        {NORMAL_D, "é", "e\u0301"},
        {NORMAL_KC, "ﬁ①", "fi1"},
        {NORMAL_KD, "é²", "e\u03012"},
        {NORMAL_C, "\u1112\u1161\u11ab", "한"},
        {NORMAL_C, "\uac00\u11a7", "\uac00\u11a7"}, /* U+11A7 does not join */
        {NORMAL_D, "한", "\u1112\u1161\u11ab"},
        {NORMAL_C, "a\u0327\u0301", "á\u0327"},
        {NORMAL_D, "a\u0301\u0327", "a\u0327\u0301"},
        {NORMAL_C, "\u0958", "\u0915\u093c"}, /* excluded from composition */
        {NORMAL_C, "\u212b", "\u00c5"},
        {NORMAL_C, "\U00011d1e", "\U00011d1e"},
    };
    struct buf out = {0};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        buf_clear(&out);
        normal_form_apply(cases[i].form, str_cstr(cases[i].text), &out);
        cr_expect(str_eq(buf_str(&out), str_cstr(cases[i].want)), "case %zu", i);
        cr_expect(normal_form_holds(cases[i].form, str_cstr(cases[i].text)) <=
                  str_eq(buf_str(&out), str_cstr(cases[i].text)));
    }
    buf_done(&out);
}

/* A mark joins the character before it, after a text of any length. */
TEST(normal_form, behind_ascii_of_any_length)
{
    struct buf text = {0}, want = {0}, out = {0};

    for (size_t n = 0; n <= 20; n++) {
        buf_clear(&text);
        buf_clear(&out);
        for (size_t i = 0; i < n; i++)
            buf_add_c(&text, (char)('a' + i));
        buf_clear(&want);
        buf_add_str(&want, buf_str(&text));
        cr_expect(normal_form_holds(NORMAL_C, buf_str(&text)));
        buf_puts(&text, "e\u0301中z");
        buf_puts(&want, "é中z");
        cr_expect_not(normal_form_holds(NORMAL_C, buf_str(&text)), "%zu", n);
        cr_expect(normal_form_holds(NORMAL_C, buf_str(&want)), "%zu", n);
        normal_form_apply(NORMAL_C, buf_str(&text), &out);
        cr_expect(str_eq(buf_str(&out), buf_str(&want)), "%zu: %.*s", n, (int)out.len, out.p);
    }
    buf_done(&text);
    buf_done(&want);
    buf_done(&out);
}

/* A long run of marks is ordered, and nothing is lost. */
TEST(normal_form, many_marks)
{
    struct buf text = {0}, out = {0};
    uint8_t last = 0;

    buf_add_c(&text, 'a');
    for (int i = 0; i < 20000; i++)
        buf_puts(&text, i % 2 ? "\u0327" : "\u0338");
    normal_form_apply(NORMAL_D, buf_str(&text), &out);
    cr_assert_eq(out.len, text.len);
    for (size_t i = 1; i < out.len; i += 2) {
        uint32_t cp;

        unicode_read(out.p + i, &cp);
        cr_assert_leq(last, unicode_combining_class(cp));
        last = unicode_combining_class(cp);
    }
    buf_done(&text);
    buf_done(&out);
}
