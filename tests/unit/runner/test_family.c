#include "runner/family.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "costs.h"
#include "testing.h"

static bool spares_5(pid_t pid)
{
    return pid == 5;
}

/* Returns the kinship of the process with this pid. */
static enum kinship kin_of(const struct relative *all, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].pid == pid)
            return all[i].kin;
    return KIN_UNKNOWN;
}

TEST(family, descendants_are_found_in_any_order)
{
    struct relative all[] = {
        {.pid = 9, .parent = 7}, {.pid = 7, .parent = 3},  {.pid = 3, .parent = 2},
        {.pid = 2, .parent = 1}, {.pid = 1, .parent = 0},  {.pid = 6, .parent = 5},
        {.pid = 5, .parent = 2}, {.pid = 8, .parent = 1},  {.pid = 10, .parent = 8},
        {.pid = 4, .parent = 6}, {.pid = 11, .parent = 99}};

    enum { N = sizeof(all) / sizeof(all[0]) };

    static const pid_t ours[] = {3, 7, 9}, others[] = {1, 2, 4, 5, 6, 8, 10, 11};

    family_find(all, N, 2, spares_5);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        cr_expect_eq(kin_of(all, N, ours[i]), KIN_OURS, "%d", (int)ours[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect_eq(kin_of(all, N, others[i]), KIN_OTHERS, "%d", (int)others[i]);
    for (size_t i = 0; i < N; i++)
        all[i].kin = KIN_UNKNOWN;
    family_find(all, N, 2, NULL);
    cr_expect_eq(kin_of(all, N, 5), KIN_OURS);
    cr_expect_eq(kin_of(all, N, 4), KIN_OURS);
}

/* Pids may be reused while the processes are read. */
TEST(family, who_descends_from_himself_is_nobodys)
{
    struct relative all[] = {{.pid = 4, .parent = 5}, {.pid = 5, .parent = 6},
                             {.pid = 6, .parent = 4}, {.pid = 7, .parent = 6},
                             {.pid = 8, .parent = 2}, {.pid = 9, .parent = 9}};

    family_find(all, 6, 2, NULL);
    for (pid_t pid = 4; pid < 10; pid++)
        cr_expect_eq(kin_of(all, 6, pid), pid == 8 ? KIN_OURS : KIN_OTHERS, "%d", (int)pid);
    family_find(NULL, 0, 2, NULL);
}

/* Measures one chain of forks, newest first: each generation is one process. */
static struct cost chain(const void *ctx, uint32_t n)
{
    struct relative *all = mem_calloc(n, sizeof(*all));
    double start_s;
    struct cost c = {0};

    (void)ctx;
    for (uint32_t i = 0; i < n; i++)
        all[i] = (struct relative){.pid = (pid_t)(n - i + 1), .parent = (pid_t)(n - i)};
    start_s = cost_now_s();
    family_find(all, n, 1, NULL);
    c.seconds = cost_now_s() - start_s;
    cr_assert_eq(kin_of(all, n, (pid_t)(n + 1)), KIN_OURS);
    free(all);
    return c;
}

TEST(family, many_generations_cost_their_number)
{
    expect_linear("a chain of forks", chain, NULL, 2000);
}
