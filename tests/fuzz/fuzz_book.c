/* fuzz: rg_dispatcher */
/* Records of the dispatcher's journal, one a line: whatever stands there, the book's counts hold.
 */
#include "dispatcher/book.h"

#include "common/base/check.h"
#include "common/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_group(const struct group *g)
{
    uint32_t n[ROLLOUT_STATES] = {0};

    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
        n[g->rollouts[i].state]++;
    if (g->rollouts)
        CHECK(n[ROLLOUT_WAITING] == g->waiting && n[ROLLOUT_RUNNING] == g->running &&
              n[ROLLOUT_SUCCEEDED] == g->succeeded);
    else
        CHECK(g->waiting == group_rollouts(g) && g->running == 0);
    if (group_settled(g))
        CHECK(g->running == 0 && g->waiting == 0);
}

static void check_book(const struct book *b)
{
    const struct group *g;
    uint64_t open = 0;

    LIST_EACH(&b->all, g, struct group, all_entry) {
        check_group(g);
        open += !group_settled(g);
    }
    CHECK(open == b->n_waiting);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_of((const char *)data, size);
    struct book b;

    book_init(&b);
    b.keeps_gone = size % 2; /* as at a start, or behind it */
    while (rest.len > 0) {
        struct err e;

        (void)book_apply(&b, str_cut(&rest, '\n'), &e);
        check_book(&b);
    }
    book_done(&b);
    return 0;
}
