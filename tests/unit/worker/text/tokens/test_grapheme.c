/* Grapheme clusters: a text made of clusters is cut into the same clusters. */
#include "testing.h"
#include "worker/text/tokens/grapheme.h"

static void expect_clusters(const char *const *clusters, size_t n)
{
    char text[256];
    size_t len = 0, at = 0;

    for (size_t i = 0; i < n; i++) {
        size_t more = strlen(clusters[i]);

        memcpy(text + len, clusters[i], more);
        len += more;
    }
    for (size_t i = 0; i < n; i++) {
        size_t got = grapheme_len(str_of(text, len), at);

        cr_assert_eq(got, strlen(clusters[i]), "cluster %zu of %.*s: %zu bytes", i, (int)len, text,
                     got);
        at += got;
    }
    cr_assert_eq(at, len);
}

#define EXPECT(...)                                          \
    do {                                                     \
        static const char *const list[] = {__VA_ARGS__};     \
        expect_clusters(list, sizeof(list) / sizeof(*list)); \
    } while (0)

TEST(grapheme, clusters)
{
    EXPECT("a", "b", " ", "~");
    EXPECT("\r\n", "\n", "\r", "\r\n", "\t");
    EXPECT("e\xcc\x81", "x\xcc\x80\xcc\x81", "\n", "\xcc\x81", "a"); /* marks join, not controls */
    EXPECT("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81",
           "\xea\xb0\x80", "\xe1\x84\x80"); /* Hangul: L V T, LV T, LVT, LV, L */
    EXPECT("\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", "\xf0\x9f\x87\xab\xf0\x9f\x87\xb7",
           "\xf0\x9f\x87\xa9"); /* flags are pairs */
    EXPECT("\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
           "\xf0\x9f\x91\x8b\xf0\x9f\x8f\xbd", "\xe2\x9d\xa4\xef\xb8\x8f"); /* ZWJ, skin, VS16 */
    EXPECT("a\xe2\x80\x8d", "\xf0\x9f\x91\xa9"); /* a ZWJ joins only pictographs */
    EXPECT("\xe0\xa4\x95\xe0\xa5\x8d\xe0\xa4\xb7", "\xe0\xa4\x95", "\xe0\xa4\xb7"); /* conjunct */
    EXPECT("\xd8\x81x", "y");                           /* U+0601 is written before */
    EXPECT("\xe0\xb8\x99\xe0\xb8\xb3", "\xe4\xb8\xad"); /* Thai SARA AM follows its base */
}
