/* The number of ends of sessions that are sent to an engine at once, and of those that wait. */
#include <stdio.h>
#include <stdlib.h>

#include "testing.h"
#include "worker/engine/wire/session_ends.h"

static void add(struct session_ends *s, size_t n)
{
    char id[32];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(id, sizeof(id), "s%zu", i);
        session_ends_add(s, str_cstr(id), NULL);
    }
}

TEST(session_ends, few_run_and_the_oldest_come_first)
{
    struct session_ends s = {0};
    char *id, want[32];
    size_t begun = 0;

    add(&s, 20);
    for (; begun < SESSION_ENDS_AT_ONCE; begun++) {
        (void)snprintf(want, sizeof(want), "s%zu", begun);
        id = session_ends_next(&s);
        cr_assert_not_null(id);
        cr_expect_str_eq(id, want);
        free(id);
    }
    cr_expect_null(session_ends_next(&s));
    session_ends_over(&s, true, NULL);
    id = session_ends_next(&s);
    cr_assert_not_null(id);
    cr_expect_str_eq(id, "s8");
    free(id);
    cr_expect_eq(s.n, 20 - SESSION_ENDS_AT_ONCE - 1);
    session_ends_forget(&s);
    cr_expect(s.n == 0 && s.running == SESSION_ENDS_AT_ONCE);
    session_ends_done(&s, NULL);
    cr_expect_eq(s.running, 0);
}

TEST(session_ends, those_that_wait_are_bounded)
{
    struct session_ends s = {0};

    add(&s, SESSION_ENDS_WAITING + 5);
    cr_expect_eq(s.n, SESSION_ENDS_WAITING);
    session_ends_done(&s, NULL);
    cr_expect_eq(s.n, 0);
}
