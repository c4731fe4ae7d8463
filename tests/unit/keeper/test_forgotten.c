/* Places of this node and of lost ones that the store has forgotten. */
#include "common/base/clock.h"
#include "keeper_kit.h"

/* The store had a place of the node "a", and a later list lacks it. */
static void lose_entry(struct keeper_case *f, uint64_t ago_ms)
{
    const struct store_entry others = {
        .owner = STR("a"), .epoch = 90, .base = 80, .beat = 5, .since = 90};

    for (int i = 0; i < 5; i++)
        fleet_view_end_list(&f->k.view, 1);
    list(f, OTHER, others, 1);
    fleet_view_end_list(&f->k.view, clock_boot_ms() - ago_ms);
    cr_assert_null(fleet_view_place(&f->k.view, OTHER));
}

TEST(forgotten, an_entry_is_restored_for_its_lost_owner)
{
    struct keeper_case f;

    begin_case(&f);
    lose_entry(&f, LEASE_MS / 4);
    fleet_view_note_emptied(&f.k.view);
    forgotten_restore(&f.k);
    cr_assert_eq(f.store.n, 0, "a living owner does it now");
    f.k.lease_ms = LEASE_MS / 2;
    forgotten_restore(&f.k);
    forgotten_restore(&f.k);
    cr_assert_eq(f.store.n, 1);
    cr_assert(f.store.claims[0].place == OTHER && f.store.claims[0].known == 80 &&
              f.store.claims[0].beat == 0 && f.store.claims[0].restores);
    cr_assert(str_eq_c(f.store.claims[0].me, "a"));
    answer_claim(&f.store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    forgotten_restore(&f.k);
    cr_assert_eq(f.store.n, 1, "again");
    answer_claim(&f.store, &(struct store_answer){.verdict = STORE_DONE, .owner = STR("a")});
    cr_assert_eq(place_table_own_epoch(f.k.table, OTHER), 0);
    end_case(&f);
}

TEST(forgotten, an_entry_that_is_back_or_was_deleted_is_left)
{
    struct store_entry back = {.owner = STR("b"), .epoch = 99, .base = 99, .since = 99, .beat = 1};
    struct keeper_case f;

    begin_case(&f);
    lose_entry(&f, LEASE_MS);
    forgotten_restore(&f.k);
    cr_assert_eq(f.store.n, 0, "the store was not emptied: the node was forgotten");
    fleet_view_note_emptied(&f.k.view);
    for (back.before = 1; back.before <= 80; back.before += 79) {
        list(&f, OTHER, back, 2);
        forgotten_restore(&f.k);
        cr_assert_eq(f.store.n, back.before == 1, "made anew, without what a had");
        while (f.store.n > 0)
            answer_claim(&f.store, &(struct store_answer){.verdict = STORE_ALIVE});
    }
    cr_assert_eq(f.k.view.gone.n, 0);
    end_case(&f);
}

TEST(forgotten, a_place_that_is_being_read_is_claimed_without_records)
{
    const struct store_refusal fenced = {.verdict = STORE_FENCED, .base = 9};
    struct store_answer done = {.verdict = STORE_DONE, .base = 10};
    struct keeper_case f;

    begin_case(&f);
    f.k.listing = true; /* no list is asked for */
    f.k.step = JOIN_FLEET;
    ownership_adopt(&f.k, &(struct seen_place){.index = OTHER});
    for (done.epoch = 10; done.epoch <= 12; done.epoch++) {
        cr_assert_eq(f.store.claims[0].bare, done.epoch < 12, "all was read");
        answer_claim(&f.store, &done);
        if (done.epoch == 11)
            place_table_report_whole(f.k.table, OTHER, 11, 0);
        ownership_renew(&f.k);
        answer_claim(&f.store,
                     &(struct store_answer){STORE_DONE, .refused = &fenced, .n_refused = 1});
    }
    end_case(&f);
}
