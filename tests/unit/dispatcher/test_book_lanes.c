/* The next claim if some groups cannot be claimed, because they rest or are reserved. */
#include "book_kit.h"
#include "common/codec/json.h"
#include "costs.h"
#include "dispatcher/result.h"
#include "dispatcher/waits.h"
#include "testing.h"

enum { KIND_RESTS, KIND_RESERVED, KINDS };

static struct rollout *next_rollout(struct book *b, uint64_t wall_ms)
{
    return book_next_rollout(b, book_runner_made(b, STR("r")), STR("x"), wall_ms, closed_queue,
                             NULL);
}

/* Makes n started groups, which all wait for a back-off, or are all reserved. */
static void begin_groups(struct book *b, int kind, uint32_t n)
{
    char id[16];

    for (uint32_t i = 0; i < n; i++) {
        struct rollout *m;

        (void)snprintf(id, sizeof(id), "g%u", i);
        submit(b, id, kind == KIND_RESERVED ? ",\"n\":2" : "");
        if (kind == KIND_RESTS) {
            end(b, claim(b, "x", 5000), OUTCOME_INFRA, 5000);
        } else {
            cr_assert_not_null(claim(b, "x", 5000));
            m = next_rollout(b, 5000);
            cr_assert(m && str_eq_c(m->group->spec.id, id));
            book_reserve(m);
        }
    }
}

/* Measures picks of one claim after n such groups. */
static struct cost cost_of_picks(const void *ctx, uint32_t n)
{
    struct cost cost = {0};
    struct book b;
    char id[16];

    book_init(&b);
    begin_groups(&b, *(const int *)ctx, n);
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(id, sizeof(id), "f%u", i);
        submit(&b, id, "");
    }
    cost.seconds = -cost_now_s();
    for (uint32_t i = 0; i < n; i++) {
        struct rollout *m = next_rollout(&b, 5999);

        cr_assert_not_null(m);
        book_reserve(m);
    }
    cost.seconds += cost_now_s();
    book_done(&b);
    return cost;
}

TEST(book_lanes, groups_of_which_nothing_can_be_claimed_cost_a_look)
{
    static const char *const names[KINDS] = {"back-off", "reserved"};

    for (int kind = 0; kind < KINDS; kind++)
        expect_linear(names[kind], cost_of_picks, &kind, 512);
}

TEST_WITH(book_lanes, what_can_be_claimed_again_goes_first_again, book)
{
    struct rollout *m;
    struct buf told = {0};
    struct json_out o = json_out_to(&told);

    begin_groups(f, KIND_RESTS, 1);
    submit(f, "h", "");
    submit(f, "i", "");
    m = next_rollout(f, 5999);
    cr_assert(str_eq_c(m->group->spec.id, "h"));
    book_reserve(m);
    cr_expect(str_eq_c(next_rollout(f, 5999)->group->spec.id, "i"));
    book_release(m);
    cr_expect(str_eq_c(next_rollout(f, 5999)->group->spec.id, "h"));
    cr_expect(str_eq_c(next_rollout(f, 6000)->group->spec.id, "g0"));
    for (int i = 0; i < 3; i++)
        book_reserve(next_rollout(f, 6000));
    cr_expect_null(next_rollout(f, 6000));
    result_write_queue(f, STR("train"), book_queue(f, STR("train")),
                       &(struct waits_now){.wall_ms = 6000, .mono_ms = 6000}, &o);
    cr_expect(str_find(buf_str(&told), STR("no executor offers it"), 0) != SIZE_MAX,
              "they wait all the same");
    buf_done(&told);
}

/* Finds the next rollout of the group by checking all of it. */
static struct rollout *look_at_group(const struct group *g, uint64_t wall_ms)
{
    struct rollout *second = NULL;

    for (uint32_t i = 0; i < group_rollouts(g); i++) {
        struct rollout *r = &g->rollouts[i];

        if (r->state != ROLLOUT_WAITING || r->reserved || r->not_before_ms > wall_ms)
            continue;
        if (!r->avoid || strcmp(r->avoid, "x") != 0)
            return r;
        second = second ? second : r;
    }
    return second;
}

/* Finds the rollout that book_next_rollout must find, by checking everything. It has started the
 * group if that was new. `missed`: it found none although there are some. */
static struct rollout *look_at_all(const struct book *b, uint64_t wall_ms)
{
    static struct rollout missed;
    const struct group *g;

    for (int priority = 1; priority >= 0; priority--) {
        struct rollout *fresh = NULL;

        LIST_EACH(&b->all, g, struct group, all_entry) {
            struct rollout *m = NULL;

            if (g->spec.priority != priority || group_settled(g))
                continue;
            if (g->rollouts)
                m = look_at_group(g, wall_ms);
            else
                fresh = &missed;
            if (m)
                return m;
        }
        if (fresh)
            return fresh;
    }
    return NULL;
}

static void do_something(struct book *b, struct rollout *m, uint64_t at_ms, unsigned what)
{
    static unsigned n;
    struct buf record = {0};
    struct attempt *a = LIST_FIRST_OF(&b->running, struct attempt, entry);
    struct group *g;
    char id[ATTEMPT_ID_LEN + 1];

    (void)snprintf(id, sizeof(id), "%032x", 1u << 20 | ++n);
    if (what < 2) {
        if (b->n_waiting >= 4 || n % 3 > 0)
            return;
        (void)snprintf(id, sizeof(id), "s%u", n);
        submit(b, id, what ? ",\"n\":3,\"priority\":1" : ",\"n\":2,\"extra\":1");
    } else if (what < 6 && m) {
        book_reserve(m);
        if (what < 4)
            return;
        record_claim(m->group->spec.id,
                     &(struct record_claim){m->index, str_cstr(id), STR("w0-x"), STR("x")}, at_ms,
                     &record);
        apply(b, &record);
    } else if (what < 9 && a) {
        end(b, a, what == 6 ? OUTCOME_OK : what == 7 ? OUTCOME_ERROR : OUTCOME_INFRA, at_ms);
    } else if (what == 9) {
        LIST_EACH(&b->all, g, struct group, all_entry)
            for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
                if (g->rollouts[i].reserved && (n + i) % 3 == 0)
                    book_release(&g->rollouts[i]);
    } else if (what == 10 && n % 4 == 0 && (g = LIST_FIRST_OF(&b->all, struct group, all_entry))) {
        record_cancel(g->spec.id, false, at_ms, &record);
        apply(b, &record);
    }
}

TEST_WITH(book_lanes, the_next_rollout_is_the_one_that_a_look_at_all_finds, book)
{
    uint64_t at_ms = 5000;
    unsigned random = 7, found = 0;

    for (unsigned i = 0; i < 20000; i++) {
        struct rollout *m = next_rollout(f, at_ms);

        cr_assert_eq(m, look_at_all(f, at_ms), "step %u", i);
        found += m != NULL;
        random = random * 1103515245u + 12345u;
        at_ms += (random >> 16) % 400;
        do_something(f, m, at_ms, (random >> 8) % 11);
    }
    cr_expect(found > 5000 && found < 18000, "%u", found);
}
