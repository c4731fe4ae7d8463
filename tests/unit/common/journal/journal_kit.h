/*
 * A journal in a folder of its own, and what a start replays of it.
 */
#ifndef RG_UNIT_JOURNAL_KIT_H
#define RG_UNIT_JOURNAL_KIT_H

#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/journal/journal.h"
#include "testing.h"

static char dir[64];

struct replay {
    struct buf got; /* the replayed records */
    struct err e;
};

static inline void replay_open(struct replay *f)
{
    (void)f;
    (void)snprintf(dir, sizeof(dir), "/tmp/rg-journal-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static inline void replay_close(struct replay *f)
{
    char command[128];

    buf_done(&f->got);
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a fixed text */
}

/* Collects replayed records as "id=payload;", with the first 40 bytes of a long payload. */
static inline int collect(void *ctx, struct str id, struct str payload, struct err *e)
{
    (void)e;
    buf_printf(ctx, "%.*s=%.*s;", (int)id.len, id.p, (int)MIN_OF(payload.len, 40), payload.p);
    return 0;
}

/* Opens the journal with these options in the folder. */
static inline struct journal *open_as(struct journal_options o, struct buf *replayed)
{
    struct journal *j = NULL;
    struct err e = {0};

    buf_clear(replayed);
    o.dir = dir;
    cr_assert_eq(journal_open(NULL, &o, collect, replayed, &j, &e), 0, "%s", e.text);
    return j;
}

/* Opens a journal for an owner that keeps no last records: the dispatcher. */
static inline struct journal *open_in_order(uint64_t segment_bytes, struct buf *replayed)
{
    return open_as((struct journal_options){.durability = JOURNAL_PROCESS,
                                            .segment_bytes = segment_bytes,
                                            .in_order = true},
                   replayed);
}

static inline void append(struct journal *j, const char *id, const char *payload)
{
    struct err e = {0};

    cr_assert_geq(journal_append(j, str_cstr(id), str_cstr(payload), NULL, NULL, &e), 0, "%s",
                  e.text);
}

static inline void check_replayed(const struct buf *b, const char *want)
{
    cr_assert(str_eq_c(buf_str(b), want), "got %.*s want %s", (int)b->len, b->p, want);
}

/* Compacts until nothing more is worth it. */
static inline void compact_all(struct journal *j, bool thorough)
{
    struct err e = {0};
    int rc;

    while ((rc = journal_compact(j, thorough, &e)) == 1)
        ;
    cr_assert_eq(rc, 0, "%s", e.text);
}

#endif
