#include "supervisor/suspects.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/proc/board.h"
#include "testing.h"

enum { SLOT = BOARD_WORKER0, KILLER = 7, BYSTANDER = 9, HOUR = SUSPECT_MEMORY_MS };

/* A worker in SLOT dies during these works (0: none). Then this body is refused, or none (0). */
struct deadly_moment {
    uint64_t at_ms, one, other, refused;
};

static bool idle(const struct board *b)
{
    for (unsigned i = 0; i < BOARD_WORKS_MAX; i++)
        if (b->slots[SLOT].works[i] != 0)
            return false;
    return true;
}

static bool die(struct suspects *s, struct board *b, uint64_t one, uint64_t other, uint64_t now_ms)
{
    b->slots[SLOT].works[0] = one;
    b->slots[SLOT].works[3] = other;
    return suspects_add_death(s, b, SLOT, false, now_ms);
}

/* Plays a moment. Reports whether its result is as expected. */
static bool happens(struct suspects *s, struct board *b, const struct deadly_moment *d)
{
    bool guilty = die(s, b, d->one, d->other, d->at_ms);

    return guilty == (d->refused != 0) && idle(b) &&
           board_is_quarantined(b, KILLER, d->at_ms) == (d->refused == KILLER);
}

static void expect_deaths(const struct deadly_moment *d, size_t n)
{
    struct suspects *s = mem_zalloc(sizeof(*s));
    struct board *b = board_new();

    for (size_t i = 0; i < n; i++)
        cr_expect(happens(s, b, &d[i]), "death %zu", i);
    cr_expect(!board_is_quarantined(b, BYSTANDER, d[n - 1].at_ms));
    board_free(b);
    free(s);
}

TEST(suspects, who_stands_alone_at_two_deaths_is_guilty)
{
    static const struct deadly_moment d[] = {
        {1000, KILLER, 0, 0}, {1500, 0, 0, 0}, {2000, 0, KILLER, KILLER}};

    expect_deaths(d, ARRAY_LEN(d));
}

TEST(suspects, kills_from_outside_take_six)
{
    struct suspects *s = mem_zalloc(sizeof(*s));
    struct board *b = board_new();

    for (uint64_t i = 1; i <= 6; i++) {
        b->slots[SLOT].works[0] = KILLER;
        cr_expect(suspects_add_death(s, b, SLOT, true, 1000 * i) == (i == 6), "kill %u",
                  (unsigned)i);
    }
    cr_expect(board_is_quarantined(b, KILLER, 6000));
    board_free(b);
    free(s);
}

TEST(suspects, company_takes_one_death_more)
{
    static const struct deadly_moment d[] = {
        {1000, KILLER, BYSTANDER, 0}, {2000, KILLER, BYSTANDER, 0}, {3000, 11, KILLER, KILLER}};

    expect_deaths(d, ARRAY_LEN(d));
}

TEST(suspects, a_body_that_two_threads_work_at_is_one)
{
    static const struct deadly_moment d[] = {{1000, KILLER, KILLER, 0},
                                             {2000, KILLER, KILLER, KILLER}};

    expect_deaths(d, ARRAY_LEN(d));
}

TEST(suspects, blame_is_forgotten)
{
    static const struct deadly_moment d[] = {
        {1000, KILLER, 0, 0}, {1001 + HOUR, KILLER, 0, 0}, {1002 + HOUR, KILLER, 0, KILLER}};

    expect_deaths(d, ARRAY_LEN(d));
}

/* If the table is full, the oldest entries are dropped, not the newest. */
TEST(suspects, the_table_is_bounded)
{
    struct suspects *s = mem_zalloc(sizeof(*s));
    struct board *b = board_new();
    uint64_t n = 3ull * SUSPECTS_MAX;
    bool guilty = false;

    for (uint64_t i = 0; i < n; i++)
        guilty |= die(s, b, 1000 + i, 0, 1000 + i);
    cr_expect(!guilty && !die(s, b, 1000, 0, 9000), "the first is forgotten");
    cr_expect(die(s, b, 999 + n, 0, 9001), "the last is remembered");
    board_free(b);
    free(s);
}

TEST(suspects, quarantine_ends_and_is_bounded)
{
    struct board *b = board_new();
    uint64_t n = 2ull * BOARD_QUARANTINE_MAX;

    board_quarantine(b, 0, 1000);
    cr_expect(!board_is_quarantined(b, 0, 1000), "0 is no body");
    for (uint64_t i = 1; i <= n; i++)
        board_quarantine(b, i, 1000);
    cr_expect(!board_is_quarantined(b, 1, 1000) && board_is_quarantined(b, n, 1000) &&
              board_is_quarantined(b, n, 999 + BOARD_QUARANTINE_MS) &&
              !board_is_quarantined(b, n, 1000 + BOARD_QUARANTINE_MS));
    board_free(b);
}
