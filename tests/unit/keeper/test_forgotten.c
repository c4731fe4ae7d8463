/* Places of this node and of lost ones that the store has forgotten. */
#include "common/base/clock.h"
#include "keeper_kit.h"

/* The store had a place of this node, and a later list lacks it. */
static void lose_entry(struct keeper_case *f, const char *owner, uint64_t ago_ms)
{
    const struct store_entry others = {
        .owner = str_cstr(owner), .epoch = 90, .base = 80, .beat = 5, .since = 90};

    for (int i = 0; i < 5; i++)
        fleet_view_end_list(&f->k.view, 1);
    list(f, OTHER, others, 1);
    fleet_view_end_list(&f->k.view, clock_boot_ms() - ago_ms);
    cr_assert_null(fleet_view_place(&f->k.view, OTHER));
}

/* The store was emptied less than half a lease ago: the owner a may be alive. */
static void begin_emptied(struct keeper_case *f)
{
    lose_entry(f, "a", LEASE_MS / 4);
    fleet_view_note_emptied(&f->k.view);
    forgotten_restore(&f->k);
}

TEST_WITH(forgotten, an_entry_is_restored_for_its_lost_owner, keeper_case)
{
    begin_emptied(f);
    cr_assert_eq(f->store.n, 0, "a living owner does it now");
    f->k.lease_ms = LEASE_MS / 2;
    forgotten_restore(&f->k);
    forgotten_restore(&f->k);
    cr_assert_eq(f->store.n, 1);
    cr_assert(f->store.claims[0].place == OTHER && f->store.claims[0].known == 80 &&
              f->store.claims[0].beat == 0 && f->store.claims[0].restores);
    cr_assert(str_eq_c(f->store.claims[0].me, "a"));
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the cable"});
    forgotten_restore(&f->k);
    cr_assert_eq(f->store.n, 1, "again");
    answer_claim(&f->store, &(struct store_answer){.verdict = STORE_DONE, .owner = STR("a")});
    cr_assert_eq(place_table_own_epoch(f->k.table, OTHER), 0);
}

TEST_WITH(forgotten, an_entry_is_restored_to_a_store_that_is_emptied_twice, keeper_case)
{
    begin_emptied(f);
    for (int i = 0; i < 5; i++)
        fleet_view_end_list(&f->k.view, clock_boot_ms());
    fleet_view_note_emptied(&f->k.view);
    f->k.lease_ms = 0;
    forgotten_restore(&f->k);
    cr_assert(f->store.n == 1 && f->store.claims[0].place == OTHER);
}

TEST_WITH(forgotten, a_place_without_an_owner_is_given_up, keeper_case)
{
    const struct store_answer done = {.verdict = STORE_DONE, .epoch = 99};

    lose_entry(f, "", LEASE_MS);
    fleet_view_note_emptied(&f->k.view);
    forgotten_restore(&f->k);
    cr_assert(f->store.n == 1 && f->store.claims[0].known == 80 && f->store.claims[0].me.len == 0 &&
              f->store.claims[0].incomplete);
    f->store.released = OWN;
    answer_claim(&f->store, &done);
    cr_assert(f->store.n == 1 && f->store.released == OTHER, "its ids are lost from now on");
    answer_claim(&f->store, &done);
    cr_assert_eq(place_table_own_epoch(f->k.table, OTHER), 0);
}

/* The same state folder, after a restart. */
static void begin_anew(struct keeper_case *f)
{
    fleet_view_done(&f->k.view);
    f->k.view = (struct fleet_view){.self = f->k.name};
    place_table_free(f->k.table);
    f->k.table = place_table_new();
    f->k.written_changes = 0;
}

TEST_WITH(forgotten, a_claim_that_was_seen_before_the_last_start_is_told, keeper_case)
{
    const struct store_entry seen = {.owner = STR("a"), .epoch = 90, .base = 90, .beat = 3};

    list(f, OTHER, seen, 1);
    known_places_read(&f->k, false); /* there is no file yet */
    for (uint64_t epoch = 60; epoch < 100; epoch += 10) {
        struct store_entry now = seen;

        begin_anew(f);
        now.epoch = now.base = epoch;
        list(f, OTHER, now, 1);
        known_places_read(&f->k, false);
        (void)fleet_view_publish(&f->k.view, f->k.table, LEASE_MS);
        known_places_write(&f->k);
        ownership_adopt(&f->k, fleet_view_place(&f->k.view, OTHER));
        cr_assert(f->store.n == 1 && f->store.claims[0].seen == 90);
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_ALIVE});
    }
}

TEST_WITH(forgotten, a_state_folder_is_of_one_fleet, keeper_case)
{
    static char other[] = "other";
    struct err e = {0};
    char path[80];

    cr_assert_eq(known_places_check(&f->k, &e), 0, "a new folder");
    known_places_read(&f->k, false);
    (void)snprintf(path, sizeof(path), "%s/worker-%d", f->folder, OWN);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(known_places_check(&f->k, &e), 0);
    f->k.url.name = other;
    cr_assert_eq(known_places_check(&f->k, &e), -1);
    cr_assert(strstr(e.text, "\"run\", not of \"other\""), "%s", e.text);
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(known_places_check(&f->k, &e), 0, "it has no place");
    known_places_read(&f->k, false);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(known_places_check(&f->k, &e), 0, "it is of the other fleet from then on");
}

/* The entry of the dispatcher's place, which a owns. */
static void list_dispatcher(struct keeper_case *f, uint64_t before, uint64_t epoch)
{
    const struct store_entry e = {.key = STR("place:d"),
                                  .owner = STR("a"),
                                  .epoch = epoch,
                                  .base = epoch,
                                  .before = before,
                                  .since = epoch};

    fleet_view_add(&f->k.view, &e, 1);
    fleet_view_end_list(&f->k.view, 1);
    (void)fleet_view_publish(&f->k.view, f->k.table, LEASE_MS);
}

TEST_WITH(forgotten, groups_of_a_lost_dispatcher_are_lost, keeper_case)
{
    const struct place_base own = {.claim = 60};
    struct err e;

    list_dispatcher(f, 0, 80);
    known_places_write(&f->k);
    for (int known = 0; known < 2; known++) {
        begin_anew(f);
        fleet_view_end_list(&f->k.view, 1);
        fleet_view_note_emptied(&f->k.view);
        known_places_read(&f->k, true);
        forgotten_restore(&f->k);
        cr_assert_eq(f->store.n, 0, "its next owner makes the entry");
        f->k.desk_missed_ms = 0;
        f->k.lease_ms = 0;
        (void)dispatcher_place_claim(&f->k);
        cr_assert_eq(f->store.n, 1);
        cr_assert(f->store.claims[0].restores && str_eq_c(f->store.claims[0].me, "me"));
        cr_assert_eq(f->store.claims[0].known, known ? 60 : 0, "it had older groups, or none");
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_ALIVE});

        /* a node that did not know of the last owner was faster */
        list_dispatcher(f, 1, 99);
        forgotten_restore(&f->k);
        cr_assert(f->store.n == 1 && f->store.claims[0].restores && f->store.claims[0].known == 80);
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_ALIVE});
        cr_assert_eq(place_folder_write_base(f->folder, FLEET_DISPATCHER, own, false, &e), 0);
    }
}

TEST_WITH(forgotten, the_node_that_had_the_dispatcher_last_has_lost_no_group, keeper_case)
{
    const struct place_base own = {.claim = 80};
    struct err e;

    list_dispatcher(f, 0, 80);
    known_places_write(&f->k);
    cr_assert_eq(place_folder_write_base(f->folder, FLEET_DISPATCHER, own, false, &e), 0);
    begin_anew(f);
    fleet_view_end_list(&f->k.view, 1);
    known_places_read(&f->k, true);
    f->k.lease_ms = 0;
    (void)dispatcher_place_claim(&f->k);
    cr_assert(f->store.n == 1 && f->store.claims[0].known == 80 && !f->store.claims[0].restores);
}

TEST_WITH(forgotten, places_in_the_state_folder_are_gone_from_a_new_store, keeper_case)
{
    const struct store_entry own = {.owner = STR("me"), .epoch = 70, .base = 70};
    const struct store_entry others = {
        .key = STR("place:256"), .owner = STR("a"), .epoch = 90, .base = 80};
    struct store_entry vacant = {.epoch = 60, .base = 60, .vacant = true};
    char path[80];

    (void)snprintf(path, sizeof(path), "%s/worker-%d", f->folder, OWN);
    cr_assert_eq(mkdir(path, 0700), 0);
    fleet_view_add(&f->k.view, &others, 1);
    vacant.key = STR("place:258");
    fleet_view_add(&f->k.view, &vacant, 1);
    vacant.key = STR("place:257");
    vacant.taken = true;
    fleet_view_add(&f->k.view, &vacant, 1);
    list(f, OWN, own, 1);
    (void)fleet_view_publish(&f->k.view, f->k.table, LEASE_MS);
    known_places_write(&f->k);

    begin_anew(f);
    f->k.step = JOIN_PLACES;
    fleet_view_end_list(&f->k.view, 1);
    cr_assert_eq(ownership_claim_block(&f->k, 1), 0);
    cr_assert(f->store.n == 1 && f->store.claims[0].place == OWN);
    cr_assert(place_table_had(f->k.table, OTHER) && !place_table_is_taken(f->k.table, OTHER));
    cr_assert(!place_table_had(f->k.table, OTHER + 1) &&
              place_table_is_taken(f->k.table, OTHER + 1));
    cr_assert_not(place_table_is_taken(f->k.table, OTHER + 2));
    f->k.lease_ms = 0;
    forgotten_restore(&f->k);
    cr_assert_eq(f->store.n, 3);
    for (size_t i = 1; i < 3; i++) {
        const struct store_claim *c = &f->store.claims[i];
        bool of_a = c->place == OTHER;

        cr_assert(of_a || c->place == OTHER + 1);
        cr_assert(c->known == (of_a ? 80 : 60) && c->incomplete == !of_a && c->restores);
        cr_assert(str_eq_c(c->me, of_a ? "a" : ""));
    }
}

TEST_WITH(forgotten, an_entry_that_is_back_or_was_deleted_is_left, keeper_case)
{
    struct store_entry back = {.owner = STR("b"), .epoch = 99, .base = 99, .since = 99, .beat = 1};

    lose_entry(f, "a", LEASE_MS);
    forgotten_restore(&f->k);
    cr_assert_eq(f->store.n, 0, "the store was not emptied: the node was forgotten");
    fleet_view_note_emptied(&f->k.view);
    for (back.before = 1; back.before <= 80; back.before += 79) {
        list(f, OTHER, back, 2);
        forgotten_restore(&f->k);
        cr_assert_eq(f->store.n, back.before == 1, "made anew, without what a had");
        while (f->store.n > 0)
            answer_claim(&f->store, &(struct store_answer){.verdict = STORE_ALIVE});
    }
    cr_assert_eq(f->k.view.gone.n, 0);
}

TEST_WITH(forgotten, a_place_that_is_being_read_is_claimed_without_records, keeper_case)
{
    const struct store_refusal fenced = {.verdict = STORE_FENCED, .base = 9};
    struct store_answer done = {.verdict = STORE_DONE, .base = 10};

    f->k.listing = true; /* no list is asked for */
    f->k.step = JOIN_FLEET;
    ownership_adopt(&f->k, &(struct seen_place){.index = OTHER});
    for (done.epoch = 10; done.epoch <= 12; done.epoch++) {
        cr_assert_eq(f->store.claims[0].bare, done.epoch < 12, "all was read");
        answer_claim(&f->store, &done);
        if (done.epoch == 11)
            place_table_report_whole(f->k.table, OTHER, 11, 0);
        ownership_renew(&f->k);
        answer_claim(&f->store,
                     &(struct store_answer){STORE_DONE, .refused = &fenced, .n_refused = 1});
    }
}
