/* Two kinds of names: computed ones (Hangul syllables from their letters, unified ideographs from
 * their code), and all others, which a binary search finds in the table. */
#include "worker/text/template/character_name.h"

#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/hex.h"

enum { NAME_MAX_LEN = 256 };

/* --- the table --- */

struct named {
    struct str name; /* points into the unpacked text */
    int32_t code;
};

static struct named *names; /* sorted by name */
static pthread_once_t unpacked = PTHREAD_ONCE_INIT;

static int compare_names(const void *a, const void *b)
{
    return str_cmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Reads one line of the text. Returns the start of the next one. */
static const char *read_line(const char *p, int32_t *code, struct named *ret)
{
    const char *tab = strchr(p, '\t');
    const char *end = strchr(tab, '\n');

    *code += tab == p ? 1 : (int32_t)strtol(p, NULL, 16);
    *ret = (struct named){str_of(tab + 1, (size_t)(end - tab - 1)), *code};
    return end + 1;
}

static void unpack_names(void)
{
    uLongf len = character_names_text_len;
    char *text = mem_zalloc(character_names_text_len + 1);
    const char *p = text;
    int32_t code = 0;

    CHECK(uncompress((Bytef *)text, &len, character_names_packed, character_names_packed_len) ==
              Z_OK &&
          len == character_names_text_len);
    names = mem_calloc(character_names_n, sizeof(*names));
    for (size_t i = 0; i < character_names_n; i++)
        p = read_line(p, &code, &names[i]);
    qsort(names, character_names_n, sizeof(*names), compare_names);
}

static int32_t find_character(struct str name)
{
    char upper[NAME_MAX_LEN];
    struct named key = {.name = {upper, name.len}};
    const struct named *found;

    for (size_t i = 0; i < name.len; i++)
        upper[i] = (char)(name.p[i] >= 'a' && name.p[i] <= 'z' ? name.p[i] - 32 : name.p[i]);
    (void)pthread_once(&unpacked, unpack_names);
    found = bsearch(&key, names, character_names_n, sizeof(*names), compare_names);
    return found ? found->code : -1;
}

/* --- computed names --- */

/* Removes the longest of the texts with which *s begins. Returns its index, or -1. */
static int cut_longest(struct str *s, const char *const *texts, int n)
{
    int found = -1;

    for (int i = 0; i < n; i++) {
        if (str_starts(*s, str_cstr(texts[i])) &&
            (found < 0 || strlen(texts[i]) > strlen(texts[found])))
            found = i;
    }
    if (found >= 0)
        *s = str_sub(*s, strlen(texts[found]), SIZE_MAX);
    return found;
}

/* Reads a syllable as letters: LEAD, VOWEL and perhaps TAIL, written together. */
static int32_t parse_syllable(struct str s)
{
    static const char *const leads[] = {"G",  "GG", "N", "D",  "DD", "R", "M", "B", "BB", "S",
                                        "SS", "",   "J", "JJ", "C",  "K", "T", "P", "H"};
    static const char *const vowels[] = {"A",   "AE", "YA", "YAE", "EO", "E",  "YEO",
                                         "YE",  "O",  "WA", "WAE", "OE", "YO", "U",
                                         "WEO", "WE", "WI", "YU",  "EU", "YI", "I"};
    static const char *const tails[] = {"",   "G",  "GG", "GS", "N",  "NJ", "NH", "D", "L",  "LG",
                                        "LM", "LB", "LS", "LT", "LP", "LH", "M",  "B", "BS", "S",
                                        "SS", "NG", "J",  "C",  "K",  "T",  "P",  "H"};
    int lead = cut_longest(&s, leads, ARRAY_LEN(leads));
    int vowel = cut_longest(&s, vowels, ARRAY_LEN(vowels));
    int tail = cut_longest(&s, tails, ARRAY_LEN(tails));

    if (vowel < 0 || s.len > 0)
        return -1;
    return 0xac00 + (lead * (int)ARRAY_LEN(vowels) + vowel) * (int)ARRAY_LEN(tails) + tail;
}

/* Reads four or five hexadecimal digits with capital letters. */
static int32_t parse_ideograph(struct str digits)
{
    static const int32_t ranges[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0x20000, 0x2a6df},
                                        {0x2a700, 0x2b738}, {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1},
                                        {0x2ceb0, 0x2ebe0}, {0x30000, 0x3134a}};
    int32_t code = 0;

    if (digits.len != 4 && digits.len != 5)
        return -1;
    for (size_t i = 0; i < digits.len; i++) {
        if (hex_value(digits.p[i]) < 0 || digits.p[i] >= 'a')
            return -1;
        code = code * 16 + hex_value(digits.p[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return code;
    }
    return -1;
}

int32_t character_by_name(struct str name)
{
    const struct str hangul = STR("HANGUL SYLLABLE "), cjk = STR("CJK UNIFIED IDEOGRAPH-");

    if (str_starts(name, hangul))
        return parse_syllable(str_sub(name, hangul.len, SIZE_MAX));
    if (str_starts(name, cjk))
        return parse_ideograph(str_sub(name, cjk.len, SIZE_MAX));
    return name.len > 0 && name.len < NAME_MAX_LEN ? find_character(name) : -1;
}
