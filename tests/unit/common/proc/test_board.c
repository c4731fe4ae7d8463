#include "common/fleet/place_table.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"

#include "testing.h"

TEST(board, indexes_resolve_through_adoption)
{
    struct board *b = board_new();

    b->worker_base = 10;
    for (unsigned i = 0; i < 3; i++)
        b->slots[BOARD_WORKER0 + i].state = BOARD_READY;
    cr_assert_eq(board_resolve(b, 10), 0);
    cr_assert_eq(board_resolve(b, 12), 2);
    cr_assert_eq(board_resolve(b, 13), -1);
    cr_assert_eq(board_resolve(b, 9), -1);
    cr_assert_eq(board_resolve(b, 999999), -1);
    b->slots[BOARD_WORKER0 + 2].state = BOARD_EMPTY;
    b->slots[BOARD_WORKER0 + 2].adopter = 1 + 1;
    cr_assert_eq(board_resolve(b, 12), 1);
    b->slots[BOARD_WORKER0 + 1].adopter = 1 + 0;
    cr_assert_eq(board_resolve(b, 12), 0);
    b->slots[BOARD_WORKER0].adopter = 1 + 2; /* a cycle must not cause an endless loop */
    cr_assert_eq(board_resolve(b, 12), -1);
    board_free(b);
}

TEST(board, a_place_serves_another_index)
{
    struct board *b = board_new();

    b->worker_base = 256;
    b->slots[BOARD_WORKER0].state = BOARD_READY;
    cr_assert_eq(board_index(b, 1), 257);
    cr_assert_eq(board_place(b, 257), 1);
    cr_assert_eq(board_place(b, 5), -1);
    board_set_index(b, 1, 5);
    b->slots[BOARD_WORKER0 + 1].state = BOARD_READY;
    cr_assert_eq(board_index(b, 1), 5);
    cr_assert_eq(board_place(b, 5), 1);
    cr_assert_eq(board_resolve(b, 5), 1);
    cr_assert_eq(board_place(b, 257), -1, "its place has another index");
    cr_assert(board_is_foreign(b, 1));
    cr_assert_not(board_is_foreign(b, 0));
    board_set_index(b, 2, 257);
    cr_assert_eq(board_place(b, 257), 2);
    cr_assert_not(board_is_foreign(b, 2), "an index of this node's block");
    board_set_came(b, 2, true);
    cr_assert(board_is_foreign(b, 2), "which another node had meanwhile");
    board_set_came(b, 2, false);
    cr_assert_not(board_is_foreign(b, 2));
    board_set_index(b, 1, 257);
    cr_assert_eq(board_place(b, 5), -1);
    board_free(b);
}

TEST(board, requests_of_all_who_count_them_are_seen)
{
    struct board *b = board_new();

    cr_expect_eq(board_engine_inflight(b, 3), 0);
    board_count_engines(b, BOARD_WORKER0 + 2);
    board_count_engines(b, BOARD_WORKER0); /* a later engine does not hide the other one */
    b->slots[BOARD_WORKER0].engine_inflight[3] = 5;
    b->slots[BOARD_WORKER0 + 2].engine_inflight[3] = 2;
    cr_expect_eq(board_engine_inflight(b, 3), 7);
    board_count_engines(b, BOARD_DISPATCHER - 1);
    b->slots[BOARD_DISPATCHER - 1].engine_inflight[3] = 1;
    cr_expect_eq(board_engine_inflight(b, 3), 8);
    board_free(b);
}

TEST(heritage, a_node_that_serves_stays_ready_when_it_gets_the_dispatcher)
{
    struct board *b = board_new();
    struct heritage h = {.board = b};
    struct place_table *fleet = place_table_new();
    const char *reason = "";

    b->orders = 1;
    b->slots[BOARD_WORKER0].orders = 2;
    b->slots[BOARD_WORKER0].state = BOARD_READY;
    b->slots[BOARD_WORKER0].engines_up = 1;
    b->workers = 1;
    for (int in_fleet = 0; in_fleet < 2; in_fleet++) {
        h.fleet = in_fleet ? fleet : NULL;
        b->slots[BOARD_DISPATCHER].state = BOARD_READY;
        cr_expect_eq(heritage_check_ready(&h, &reason), 0, "%s", reason);
        b->slots[BOARD_DISPATCHER].state = BOARD_STARTING;
        cr_expect_eq(heritage_check_ready(&h, &reason), in_fleet ? 0 : -1, "%s", reason);
    }
    cr_expect_str_eq(reason, "the dispatcher is starting");
    place_table_free(fleet);
    board_free(b);
}

TEST(board, readiness_needs_everybody_and_an_engine)
{
    struct board *b = board_new();
    const char *reason = "";

    b->routers = 1;
    b->workers = 2;
    cr_assert_eq(board_check_ready(b, &reason), -1);
    b->slots[BOARD_ROUTER0].state = BOARD_READY;
    b->slots[BOARD_WORKER0].state = BOARD_READY;
    b->slots[BOARD_WORKER0 + 1].state = BOARD_READY;
    cr_assert_eq(board_check_ready(b, &reason), -1);
    cr_assert_str_eq(reason, "no engine answers");
    b->slots[BOARD_WORKER0 + 1].engines_up = 1;
    cr_assert_eq(board_check_ready(b, &reason), 0);
    b->draining = 1;
    cr_assert_eq(board_check_ready(b, &reason), -1);
    cr_assert_str_eq(reason, "draining");
    board_free(b);
}
