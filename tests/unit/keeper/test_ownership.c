/* Claims that the keeper makes from what it has seen. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/proc/board.h"
#include "common/proc/place_folder.h"
#include "keeper_kit.h"

TEST_WITH(ownership, a_claim_that_was_done_unheard_is_made_again, keeper_case)
{
    const struct store_entry ours = {
        .owner = STR("me"), .epoch = 9, .base = 9, .beat = 5, .whole = true};

    list(f, OTHER, ours, 1);
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1);
    cr_assert(f->store.claims[0].place == OTHER && f->store.claims[0].beat == 5);
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1, "the claim is under way");
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE,
                                                   .owner = STR("me"),
                                                   .epoch = 10,
                                                   .base = 10,
                                                   .beat = 6,
                                                   .whole = true});
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 0, "it is owned");
    cr_assert_eq(place_table_own_epoch(f->k.table, OTHER), 10);
}

TEST_WITH(ownership, an_own_place_without_journal_is_claimed_only_if_the_store_has_all, keeper_case)
{
    struct store_entry ours = {.owner = STR("me"), .epoch = 9, .base = 8, .beat = 5};
    char path[80];

    list(f, OWN, ours, 1);
    (void)adopting_claim_lost(&f->k);
    cr_assert(f->store.n == 0 && f->k.unserved == 1 && f->k.complained_ms > 0);
    f->k.step = JOIN_PLACES;
    cr_assert_eq(ownership_claim_block(&f->k, 1), 0);
    cr_assert(f->store.n == 1 && f->store.claims[0].place == OWN + 1, "an unused index");
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    (void)snprintf(path, sizeof(path), "%s/worker-%u", f->folder, OWN);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)ownership_claim_block(&f->k, 1);
    cr_assert(f->store.n == 1 && f->store.claims[0].place == OWN, "its journal is here");
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    cr_assert_eq(rmdir(path), 0);
    ours.whole = true;
    list(f, OWN, ours, 2);
    (void)ownership_claim_block(&f->k, 1);
    cr_assert(f->store.n == 1 && f->store.claims[0].place == OWN);
}

TEST_WITH(ownership, a_first_entry_is_not_whole_if_its_sessions_are_here, keeper_case)
{
    char path[80];

    fleet_view_end_list(&f->k.view, 1);
    f->k.step = JOIN_PLACES;
    (void)snprintf(path, sizeof(path), "%s/worker-%u", f->folder, OWN);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)ownership_claim_block(&f->k, 2);
    cr_assert_eq(f->store.n, 2);
    cr_assert_eq(f->store.claims[0].known, 1, "the store was emptied while the node was down");
    cr_assert_eq(f->store.claims[1].known, 0, "a new index");
    cr_assert_eq(rmdir(path), 0);
}

/* Claims the place with the base of an earlier claim, as after the store has forgotten that one. */
static bool answers_after_claim(struct keeper_case *f, uint32_t index, uint64_t epoch)
{
    ownership_claim_first(&f->k, index, false);
    cr_assert_eq(f->store.n, 1);
    answer_claim(&f->store,
                 &(struct store_answer){.verdict = STORE_DONE, .epoch = epoch, .base = 1});
    cr_assert_eq(place_table_own_epoch(f->k.table, index), epoch);
    return place_table_may_answer(f->k.table, index, clock_boot_ms());
}

/* Only marks of doubt are records of the newest version, so older nodes may claim all other places.
 * Its worker reports those that the place has. */
TEST_WITH(ownership, only_a_place_with_marks_of_doubt_needs_the_newest_version, keeper_case)
{
    f->k.asking = true; /* no other entry is written */
    cr_assert(place_table_set_own(f->k.table, OWN, 70, 0));
    ownership_renew(&f->k);
    cr_assert_eq(f->store.renewed.version, 2);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    for (int i = 0; i < 2; i++) {
        place_table_set_doubt(f->k.table, OWN, i == 0 ? 1000 : 0);
        place_table_report_version(f->k.table, OWN, i == 0 ? 1 : 3);
        ownership_renew(&f->k);
        cr_assert_eq(f->store.renewed.version, 3);
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    }
}

TEST_WITH(ownership, a_forgotten_place_waits_a_lease_unless_it_was_renewed_within_one, keeper_case)
{
    char path[80];

    (void)snprintf(path, sizeof(path), "%s/worker-%u", f->folder, OWN);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_not(answers_after_claim(f, OWN, 10), "it was never renewed");
    cr_assert_not(answers_after_claim(f, OWN, 11), "it was renewed, but it waits already");
    cr_assert(place_table_set_own(f->k.table, OWN, 12, 0));
    place_table_set_renewed(f->k.table, OWN, clock_boot_ms() - LEASE_MS);
    cr_assert_not(answers_after_claim(f, OWN, 13), "another node may have claimed it since");
    cr_assert(place_table_set_own(f->k.table, OWN, 14, 0));
    place_table_set_renewed(f->k.table, OWN, clock_boot_ms());
    cr_assert(answers_after_claim(f, OWN, 15));
}

TEST_WITH(ownership, a_folder_keeps_the_claim_that_its_records_stem_from, keeper_case)
{
    const struct store_answer claimed = {.verdict = STORE_DONE, .epoch = 70, .base = 60};

    f->k.asking = true; /* no other entry is written */
    cr_assert_eq(ownership_read_base(&f->k, OWN), 0);
    ownership_claim_first(&f->k, OWN, false);
    answer_claim(&f->store, &claimed);
    cr_assert_eq(ownership_read_base(&f->k, OWN), 60);
    cr_assert_eq(place_table_own_base(f->k.table, OWN), 60);
    ownership_renew(&f->k);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    cr_assert_eq(ownership_read_base(&f->k, OWN), 60, "the store lacks records");
    place_table_report_whole(f->k.table, OWN, 70, 0);
    ownership_renew(&f->k);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    cr_assert_eq(ownership_read_base(&f->k, OWN), 70);
    cr_assert_eq(place_table_own_base(f->k.table, OWN), 70);
}

TEST_WITH(ownership, a_place_that_was_not_read_whole_is_bare_after_a_restart, keeper_case)
{
    struct store_answer claimed = {.verdict = STORE_DONE, .epoch = 70, .base = 70, .whole = true};
    const struct seen_place lost = {.index = OTHER};

    f->k.asking = true; /* no other entry is written */
    ownership_adopt(&f->k, &lost);
    claimed.n_logs = 1;
    answer_claim(&f->store, &claimed);
    for (int i = 0; i < 2; i++) {
        place_table_free(f->k.table);
        f->k.table = place_table_new();
        ownership_claim_first(&f->k, OTHER, false);
        cr_assert_eq(f->store.claims[0].bare, i == 0);
        cr_assert_eq(f->store.claims[0].known, 70);
        answer_claim(&f->store, &claimed);
        place_table_report_whole(f->k.table, OTHER, 70, 0);
        ownership_renew(&f->k);
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    }
}

TEST_WITH(ownership, the_last_renewal_reports_the_places_that_workers_have_left, keeper_case)
{
    f->k.asking = true; /* no other entry is written */
    ownership_claim_first(&f->k, OWN, false);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE, .epoch = 70, .base = 70});
    place_table_report_whole(f->k.table, OWN, 70, 0);
    for (int i = 0; i < 3; i++) {
        f->k.child.draining = i > 0;
        if (i == 2)
            place_table_report_left(f->k.table, OWN, 70);
        ownership_renew(&f->k);
        cr_assert(f->store.renewed.whole && f->store.renewed.left == (i == 2));
        f->k.child.draining = false;
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    }
}

/* A start claims a place of another node if the store has forgotten that this node had it later. */
TEST_WITH(ownership, a_start_claims_what_the_store_has_forgotten, keeper_case)
{
    struct store_entry others = {
        .owner = STR("a"), .epoch = 300, .base = 300, .beat = 5, .whole = true, .since = 200};
    struct err e;

    f->k.step = JOIN_PLACES;
    f->k.entry.block = 9;
    cr_assert_eq(
        place_folder_write_base(f->folder, OTHER, (struct place_base){150, false}, true, &e), 0);
    for (others.before = 149; others.before <= 150; others.before++) {
        list(f, OTHER, others, 1);
        (void)ownership_claim_folders(&f->k);
        cr_assert_eq(f->store.n, others.before < 150);
        if (f->store.n == 0)
            continue;
        cr_assert(f->store.claims[0].place == OTHER && f->store.claims[0].known == 150);
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    }
    others.base = 140; /* its owner had the place earlier, and has not sent all */
    list(f, OTHER, others, 1);
    (void)ownership_claim_folders(&f->k);
    cr_assert(f->store.n == 1 && f->store.claims[0].known == 150);
}

/* The store may lack what was unread. */
TEST_WITH(ownership, a_node_that_stops_claims_nothing, keeper_case)
{
    const struct store_entry released = {.epoch = 9, .base = 9, .beat = 5, .whole = true};

    add_block(f);
    list(f, OTHER, released, 1);
    atomic_store(&f->h.board->draining, 1);
    (void)adopting_claim_lost(&f->k);
    cr_assert(f->store.n == 0 && f->k.unserved == 1);
    atomic_store(&f->h.board->draining, 0);
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1);
}

TEST_WITH(ownership, a_keeper_that_starts_in_a_drain_claims_no_index, keeper_case)
{
    f->k.step = JOIN_PLACES;
    atomic_store(&f->h.board->leaving, 1);
    cr_assert_eq(ownership_claim_block(&f->k, 2), 2, "the node joins, to release what it owns");
    cr_assert_eq(f->store.n, 0);
}

TEST_WITH(ownership, a_claim_that_is_answered_in_a_drain_is_released, keeper_case)
{
    const struct store_entry released = {.epoch = 9, .base = 9, .beat = 5, .whole = true};
    const struct store_answer done = {
        .verdict = STORE_DONE, .epoch = 10, .base = 9, .whole = true, .n_logs = 1};
    struct fleet_own_place own;
    size_t at = 0;

    add_block(f);
    list(f, OTHER, released, 1);
    (void)adopting_claim_lost(&f->k);
    atomic_store(&f->h.board->leaving, 1);
    answer_claim(&f->store, &done);
    cr_assert(place_table_next_own(f->k.table, &at, &own));
    cr_assert(own.index == OTHER && own.epoch == 10 && own.left_epoch == 10);
}

TEST_WITH(ownership, a_folder_that_hinders_an_adoption_is_reported, keeper_case)
{
    const struct store_entry released = {.epoch = 9, .base = 9, .beat = 5, .whole = true};
    char path[80];

    add_block(f);
    list(f, OTHER, released, 1);
    (void)snprintf(path, sizeof(path), "%s/worker-%u", f->folder, OTHER);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)adopting_claim_lost(&f->k);
    cr_assert(f->store.n == 0 && f->k.complained_ms > 0);
    cr_assert_eq(rmdir(path), 0);
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1);
}

TEST_WITH(ownership, vacant_indexes_of_the_block_are_used_first, keeper_case)
{
    struct store_entry vacant = {.epoch = 9, .base = 9, .beat = 5, .whole = true, .vacant = true};
    char path[80];

    list(f, OWN + 3, vacant, 1);
    (void)adopting_claim_lost(&f->k);
    cr_assert(f->store.n == 0 && f->k.unserved == 0, "nobody misses it");
    f->k.step = JOIN_PLACES;
    (void)snprintf(path, sizeof(path), "%s/worker-%u", f->folder, OWN + 3);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)ownership_claim_block(&f->k, 4);
    cr_assert_eq(f->store.n, 4, "three new ones, and the vacant one");
    cr_assert(f->store.claims[3].place == OWN + 3 && f->store.claims[3].beat == 5);
    (void)snprintf(path, sizeof(path), "%s/worker-%u.lost", f->folder, OWN + 3);
    cr_assert_eq(rmdir(path), 0, "its old folder was put aside");
}

TEST_WITH(ownership, the_folder_of_a_vacant_index_is_left_to_its_worker, keeper_case)
{
    struct store_entry vacant = {.epoch = 9, .base = 9, .beat = 5, .whole = true, .vacant = true};
    char path[80];

    list(f, OWN, vacant, 1);
    f->k.step = JOIN_PLACES;
    (void)snprintf(path, sizeof(path), "%s/worker-%u", f->folder, OWN);
    cr_assert_eq(mkdir(path, 0700), 0);
    atomic_store(&f->h.board->slots[BOARD_WORKER0].state, BOARD_RETIRING);
    (void)ownership_claim_block(&f->k, 1);
    cr_assert(f->store.n == 1 && f->store.claims[0].place == OWN + 1);
    cr_assert_eq(rmdir(path), 0);
}

TEST_WITH(ownership, an_adopted_place_without_sessions_is_released_at_once, keeper_case)
{
    const struct store_entry released = {.epoch = 9, .base = 9, .beat = 5, .whole = true};
    const struct store_answer done = {
        .verdict = STORE_DONE, .epoch = 10, .base = 10, .whole = true};

    add_block(f);
    list(f, OTHER, released, 1);
    (void)adopting_claim_lost(&f->k);
    answer_claim(&f->store, &done);
    cr_assert(f->store.n == 1 && f->store.released == OTHER);
    cr_assert_eq(place_table_own_epoch(f->k.table, OTHER), 0, "no worker is started");
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1, "the release is under way");
}

TEST_WITH(ownership, a_place_whose_worker_died_again_and_again_is_avoided, keeper_case)
{
    const struct store_entry released = {.epoch = 11, .base = 11, .beat = 5, .whole = true};

    add_block(f);
    cr_assert(place_table_set_own(f->k.table, OTHER, 10, 0));
    place_table_report_left(f->k.table, OTHER, 10);
    ownership_release_idle(&f->k);
    cr_assert_eq(f->store.n, 0, "a worker that ends is replaced");
    place_table_abandon(f->k.table, OTHER, 10, true);
    ownership_release_idle(&f->k);
    cr_assert(f->store.n == 1 && f->store.released == OTHER);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    cr_assert_eq(place_table_own_epoch(f->k.table, OTHER), 0);
    list(f, OTHER, released, 1);
    (void)adopting_claim_lost(&f->k);
    cr_assert(f->store.n == 0 && f->k.unserved == 1);
    f->k.avoided.at[0].until_ms = 1;
    (void)adopting_claim_lost(&f->k);
    cr_assert_eq(f->store.n, 1, "some leases later");
}

/* The dispatcher's place in a complete list. */
static void list_dispatcher(struct keeper_case *f, struct store_entry e, uint64_t now_ms)
{
    e.key = STR("place:d");
    e.version = 3;
    fleet_view_add(&f->k.view, &e, now_ms);
    fleet_view_end_list(&f->k.view, now_ms);
    (void)fleet_view_publish(&f->k.view, f->k.table, LEASE_MS);
}

static void expect_claim(struct keeper_case *f, uint64_t beat)
{
    (void)dispatcher_place_claim(&f->k);
    cr_assert_eq(f->store.n, 1);
    cr_assert(f->store.claims[0].place == FLEET_DISPATCHER && f->store.claims[0].beat == beat);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
}

static void expect_no_claim(struct keeper_case *f)
{
    (void)dispatcher_place_claim(&f->k);
    cr_assert_eq(f->store.n, 0);
}

/* The store has had no entry of the place for so long. */
static void miss_dispatcher(struct keeper_case *f, uint64_t leases)
{
    f->k.desk_missed_ms = f->k.view.unbroken_ms = clock_boot_ms() - leases * LEASE_MS;
}

TEST_WITH(dispatcher_place, a_first_entry_waits_for_the_owner_of_an_emptied_store, keeper_case)
{
    char path[80];

    f->k.entry.block = 7;
    (void)snprintf(path, sizeof(path), "%s/dispatcher", f->folder);
    fleet_view_end_list(&f->k.view, clock_boot_ms());
    f->k.founded = true;
    expect_no_claim(f);
    miss_dispatcher(f, 1);
    (void)dispatcher_place_claim(&f->k);
    cr_assert(f->store.n == 1 && f->store.claims[0].block == 7, "whose block it has");
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    f->config.dispatcher = false;
    expect_no_claim(f);
    f->config.dispatcher = true;
    f->k.founded = false;
    miss_dispatcher(f, 2);
    expect_no_claim(f);
    cr_assert_eq(mkdir(path, 0700), 0);
    expect_claim(f, 0);
    cr_assert_eq(f->store.claims[0].known, 1, "the store lacks the groups");
    cr_assert_eq(rmdir(path), 0);
    miss_dispatcher(f, 3);
    expect_claim(f, 0);
}

TEST_WITH(dispatcher_place, a_founder_that_sees_another_node_is_not_alone, keeper_case)
{
    f->k.founded = true;
    add_block(f);
    fleet_view_end_list(&f->k.view, clock_boot_ms());
    miss_dispatcher(f, 2);
    expect_no_claim(f);
    miss_dispatcher(f, 3);
    expect_claim(f, 0);
}

TEST_WITH(dispatcher_place, an_entry_that_the_store_has_lost_is_its_owners_for_some_leases,
          keeper_case)
{
    const struct store_entry others = {
        .owner = STR("a"), .epoch = 9, .base = 9, .beat = 5, .whole = true};

    f->k.founded = true;
    list_dispatcher(f, others, clock_boot_ms());
    expect_no_claim(f);
    fleet_view_end_list(&f->k.view, clock_boot_ms()); /* the store was emptied */
    fleet_view_end_list(&f->k.view, clock_boot_ms());
    cr_assert_not(fleet_view_place(&f->k.view, FLEET_DISPATCHER));
    (void)fleet_view_publish(&f->k.view, f->k.table, LEASE_MS);
    expect_no_claim(f);
    cr_assert(f->k.unserved == 0 && f->k.desk_complained_ms == 0);
    miss_dispatcher(f, 5);
    expect_no_claim(f);
    cr_assert(f->k.unserved == 1 && f->k.desk_complained_ms > 0);
    miss_dispatcher(f, 6);
    expect_claim(f, 0);
}

TEST_WITH(dispatcher_place, a_lost_owner_is_replaced_if_the_store_has_all, keeper_case)
{
    struct store_entry others = {.owner = STR("a"), .epoch = 9, .base = 8, .beat = 5};
    char path[80];

    list_dispatcher(f, others, 1);
    list_dispatcher(f, others, 1 + LEASE_MS);
    expect_no_claim(f);
    cr_assert(f->k.unserved == 1 && f->k.desk_complained_ms > 0);
    others.whole = true;
    list_dispatcher(f, others, 2 + LEASE_MS);
    (void)snprintf(path, sizeof(path), "%s/dispatcher", f->folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    expect_no_claim(f);
    cr_assert_eq(rmdir(path), 0); /* the supervisor puts it aside */
    expect_claim(f, 5);
    atomic_store(&f->h.board->leaving, 1);
    expect_no_claim(f);
}

TEST_WITH(dispatcher_place, its_owner_has_it_after_a_restart, keeper_case)
{
    struct store_entry ours = {.owner = STR("me"), .epoch = 9, .base = 8, .beat = 5};
    char path[80];

    list_dispatcher(f, ours, 1);
    expect_no_claim(f); /* some groups are nowhere */
    (void)snprintf(path, sizeof(path), "%s/dispatcher", f->folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    expect_claim(f, 5);
    cr_assert_eq(rmdir(path), 0);
    ours.whole = true;
    list_dispatcher(f, ours, 2);
    expect_claim(f, 5);
}

TEST_WITH(dispatcher_place, a_claim_that_is_answered_in_a_drain_is_released, keeper_case)
{
    struct store_answer done = {.verdict = STORE_DONE, .epoch = 10, .base = 10, .whole = true};
    struct fleet_own_place own;

    miss_dispatcher(f, 3);
    (void)dispatcher_place_claim(&f->k);
    atomic_store(&f->h.board->leaving, 1);
    answer_claim(&f->store, &done);
    cr_assert(place_table_find_own(f->k.table, FLEET_DISPATCHER, &own));
    cr_assert(own.epoch == 10 && own.left_epoch == 10);
}

TEST_WITH(dispatcher_place, a_node_whose_dispatcher_died_again_and_again_avoids_it, keeper_case)
{
    const struct store_entry released = {.epoch = 11, .base = 11, .beat = 5, .whole = true};

    cr_assert(place_table_set_own(f->k.table, FLEET_DISPATCHER, 10, 0));
    place_table_abandon(f->k.table, FLEET_DISPATCHER, 10, true);
    place_table_report_left(f->k.table, FLEET_DISPATCHER, 10);
    ownership_release_idle(&f->k);
    cr_assert(f->store.n == 1 && f->store.released == FLEET_DISPATCHER);
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE});
    list_dispatcher(f, released, clock_boot_ms());
    expect_no_claim(f);
    cr_assert(f->k.unserved == 1 && f->k.desk_complained_ms > 0);
    f->k.avoided.at[0].until_ms = 1;
    expect_claim(f, 5);
}
