/* The order of a log's records: fragments precede their commit, or are missing. */
#include "common/fleet/copy_log.h"

#include "../session/kit.h"
#include "common/base/buf.h"
#include "common/fleet/second_copy.h"
#include "testing.h"
#include "worker/ledger/ledger.h"
#include "worker/session/call/session_call.h"
#include "worker/session/record/commit.h"
#include "worker/session/store/session.h"

enum { LONG = 3000 };

static const char *make_text(struct kit *k, char letter)
{
    struct buf b = {0};
    const char *text;

    buf_puts(&b, "[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < LONG; i++)
        buf_add_c(&b, letter);
    buf_puts(&b, "\"}]");
    text = arena_str(&k->arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

/* Makes a log of the kit's records without some of them, numbered as in a journal without them. */
static struct copy_log *make_log(const struct kit *k, size_t without_from, size_t without_to)
{
    struct copy_log *l = copy_log_new(NULL, STR("w0-1"));
    uint32_t number = 0;

    for (size_t i = 0; i < k->n_journal; i++) {
        struct copy_role role = ledger_read_role(buf_str(&k->journal[i]), l->fragments.n > 0);

        if (i < without_from || i >= without_to)
            (void)copy_log_add(l, &role, number++);
    }
    return l;
}

static bool is_fragment(const struct kit *k, size_t i)
{
    uint64_t call;
    bool first;

    return session_record_fragment(buf_str(&k->journal[i]), &call, &first);
}

TEST(copy_log, fragments_wait_for_their_commit)
{
    struct kit k;
    struct session_plan *lost, *p;
    struct copy_log *l, *compacted;
    size_t from, to;

    kit_init(&k, NULL);
    k.part_bytes = 1000;
    cr_assert_geq(kit_turn(&k, make_text(&k, 'a'), "A"), 0);
    lost = kit_ask(&k, make_text(&k, 'b'), NULL);
    from = k.n_journal;
    cr_assert_gt(kit_fragments(&k, lost), 2);
    to = k.n_journal;
    p = kit_ask(&k, make_text(&k, 'c'), NULL); /* with fragments of its own */
    cr_assert_eq(kit_answer(&k, p, "C", false), 0);
    cr_assert_gt(k.n_journal, to + 2);
    cr_assert(is_fragment(&k, k.n_journal - 2));
    l = make_log(&k, 0, 0);
    /* the records have the same numbers after the lost fragments have left the journal */
    compacted = make_log(&k, from, to);
    cr_assert_eq(l->numbers.n, k.n_journal - (to - from));
    cr_assert_eq(compacted->numbers.n, l->numbers.n);
    for (size_t i = 0; i < l->numbers.n; i++) {
        uint32_t a = l->numbers.at[i], b = compacted->numbers.at[i];

        cr_assert_eq(a, b < from ? b : b + (uint32_t)(to - from));
        cr_assert(a < from || a >= to, "a lost fragment");
    }
    /* fragments precede a commit, which is the last record */
    cr_assert_not(is_fragment(&k, vec_last(&l->numbers)));
    cr_assert_eq(vec_last(&l->numbers), k.n_journal - 1);
    cr_assert_eq(l->fragments.n, to - from);
    copy_log_release_call(l, lost->call);
    cr_assert_eq(l->fragments.n, 0);
    copy_log_free(l);
    copy_log_free(compacted);
    session_release(k.store, lost);
    kit_done(&k);
}

TEST(copy_log, what_is_left_out_has_no_number)
{
    struct copy_log *l = copy_log_new(NULL, STR("w0-1"));
    struct buf rows = {0};
    struct copy_role role;

    role = (struct copy_role){.kind = COPY_FRAGMENT, .call = 1, .first = true};
    cr_assert_eq(copy_log_add(l, &role, 0), 0);
    record_begin(&rows, RECORD_ROWS, STR("w0-1"), 1);
    buf_add_str(&rows, STR("\001\005\003rows")); /* call, bytes before, piece */
    role = ledger_read_role(buf_str(&rows), true);
    cr_assert(role.kind == COPY_FRAGMENT && role.call == 1 && !role.first && role.left_out);
    cr_assert_eq(copy_log_add(l, &role, 1), 0);
    role = (struct copy_role){.kind = COPY_COMMIT, .call = 1, .named = true};
    cr_assert_eq(copy_log_add(l, &role, 2), 2);
    cr_assert(l->numbers.at[0] == 0 && l->numbers.at[1] == 2);
    buf_done(&rows);
    copy_log_free(l);
}
