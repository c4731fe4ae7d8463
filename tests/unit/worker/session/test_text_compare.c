/* Comparing texts by blocks has the same result as by bytes. */
#include <stdlib.h>

#include "testing.h"
#include "worker/session/forest/text_compare.h"

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Compares byte by byte. */
static bool same_by_bytes(struct str x, struct str y)
{
    size_t i = 0, k = 0;

    for (;;) {
        while (i < x.len && blank(x.p[i]))
            i++;
        while (k < y.len && blank(y.p[k]))
            k++;
        if (i == x.len || k == y.len)
            return i == x.len && k == y.len;
        if (x.p[i++] != y.p[k++])
            return false;
    }
}

TEST(text_compare, agrees_with_a_look_at_each_byte)
{
    static const char letters[] = "aaaab \t\n\r";
    char text[2][400];
    unsigned same = 0, other = 0;

    srand(7);
    for (int round = 0; round < 20000; round++) {
        size_t n[2] = {(size_t)rand() % 300, 0}, agree = 0, went = 0;
        struct str x, y;

        for (size_t i = 0; i < n[0]; i++)
            text[0][i] = letters[(size_t)rand() % (round % 2 ? 5 : 9)];
        /* the same text with changed blanks, and sometimes a different letter */
        for (size_t i = 0; i < n[0] && n[1] < sizeof(text[1]) - 1; i++) {
            if (rand() % 60 == 0)
                text[1][n[1]++] = letters[5 + rand() % 4];
            if (!(blank(text[0][i]) && rand() % 8 == 0))
                text[1][n[1]++] = rand() % 400 == 0 ? 'c' : text[0][i];
        }
        x = str_of(text[0], n[0]);
        y = str_of(text[1], n[1]);
        while (agree < x.len && agree < y.len && x.p[agree] == y.p[agree])
            agree++;
        cr_assert_eq(texts_agree(x, y), agree, "round %d", round);
        cr_assert_eq(texts_same_but_blanks(x, y, &went), same_by_bytes(x, y), "round %d", round);
        cr_assert_leq(went, x.len + y.len);
        *(same_by_bytes(x, y) ? &same : &other) += 1;
    }
    cr_expect(same > 1000 && other > 1000, "%u are the same, %u are not", same, other);
}

TEST(text_compare, blanks_of_either_side_count_as_read)
{
    char blanks[5000];
    size_t went = 0;

    memset(blanks, '\n', sizeof(blanks));
    blanks[0] = 'T';
    blanks[sizeof(blanks) - 1] = 'x';
    cr_expect_not(texts_same_but_blanks(STR("Think"), str_of(blanks, sizeof(blanks)), &went));
    cr_expect_geq(went, sizeof(blanks));
    went = 0;
    cr_expect_not(texts_same_but_blanks(str_of(blanks, sizeof(blanks)), STR("Think"), &went));
    cr_expect_geq(went, sizeof(blanks));
}

TEST(text_compare, absent_texts_are_empty)
{
    const struct str none = {0};
    size_t went = 0;

    cr_expect_eq(texts_agree(none, STR("a")), 0);
    cr_expect(texts_same_but_blanks(none, STR(" \n"), &went));
    cr_expect_not(texts_same_but_blanks(none, STR("a"), &went));
}
