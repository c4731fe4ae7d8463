/* journal_read: one session's records once more, over several segments and after compaction. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/os/loop.h"
#include "testing.h"
#include "worker/journal/journal.h"

static int collect(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct buf *b = ctx;

    (void)session_id;
    (void)e;
    buf_add_str(b, payload);
    buf_add_c(b, ' ');
    return 0;
}

static int read_all(struct journal *j, struct str id, struct buf *b, struct err *e)
{
    int rc = 1;

    for (size_t i = 0; rc == 1; i++)
        rc = journal_read(j, id, i, collect, b, e);
    return rc;
}

TEST(journal_read, gives_one_sessions_records_in_order)
{
    char dir[] = "/tmp/rg-journal-XXXXXX", command[64];
    struct journal_options o = {.durability = JOURNAL_PROCESS, .segment_bytes = 256};
    struct loop *loop;
    struct journal *j;
    struct buf replayed = {0}, read = {0}, none = {0};
    struct err e = {0};

    cr_assert(mkdtemp(dir));
    o.dir = dir;
    loop = loop_new(&e);
    cr_assert(loop, "%s", e.text);
    cr_assert_eq(journal_open(loop, &o, collect, &replayed, &j, &e), 0, "%s", e.text);
    for (unsigned i = 0; i < 20; i++) {
        char text[16];
        int n = snprintf(text, sizeof(text), "%c%u", i % 2 ? 'b' : 'a', i);

        cr_assert_eq(journal_append(j, i % 2 ? STR("w0-b") : STR("w0-a"), str_of(text, (size_t)n),
                                    NULL, NULL, &e),
                     0);
    }
    cr_expect_eq(read_all(j, STR("w0-a"), &read, &e), 0, "%s", e.text);
    cr_expect(str_eq_c(buf_str(&read), "a0 a2 a4 a6 a8 a10 a12 a14 a16 a18 "), "%.*s",
              (int)read.len, read.p);
    journal_drop_session(j, STR("w0-b"));
    while (journal_compact(j, true, &e) == 1)
        ;
    buf_clear(&read);
    cr_expect_eq(read_all(j, STR("w0-a"), &read, &e), 0, "%s", e.text);
    cr_expect(str_eq_c(buf_str(&read), "a0 a2 a4 a6 a8 a10 a12 a14 a16 a18 "), "%.*s",
              (int)read.len, read.p);
    cr_expect_eq(read_all(j, STR("w0-b"), &none, &e), 0);
    cr_expect_eq(none.len, 0);
    journal_close(j);
    loop_free(loop);
    buf_done(&replayed);
    buf_done(&read);
    buf_done(&none);
    (void)snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_expect_eq(system(command), 0);
}
