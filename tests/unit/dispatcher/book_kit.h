/* Operations on a book for tests. Each function writes a record and applies it. The runner is `r`.
 */
#ifndef RG_UNIT_BOOK_KIT_H
#define RG_UNIT_BOOK_KIT_H

#include <stdio.h>

#include "common/base/err.h"
#include "dispatcher/book.h"
#include "dispatcher/book_record.h"
#include "testing.h"

/* For TEST_WITH. */
static inline void book_open(struct book *f)
{
    book_init(f);
}

static inline void book_close(struct book *f)
{
    book_done(f);
}

static inline void apply(struct book *b, struct buf *record)
{
    struct err e = {0};

    cr_assert_eq(book_apply(b, buf_str(record), &e), 0, "%s", e.text);
    buf_done(record);
}

static inline void submit(struct book *b, const char *id, const char *more)
{
    struct buf text = {0}, record = {0};

    buf_printf(&text, "{\"id\":\"%s\",\"runner\":\"r\"%s}", id, more);
    record_group(str_cstr(id), buf_str(&text), (struct record_begin){0}, 1000, &record);
    apply(b, &record);
    buf_done(&text);
}

/* Reports whether a queue is closed. ctx: the name of the closed queue, or NULL. */
static inline bool closed_queue(void *ctx, const struct queue *q)
{
    return ctx && strcmp(q->name, ctx) == 0;
}

/* Claims the next rollout for an executor. Returns its attempt, or NULL. */
static inline struct attempt *claim(struct book *b, const char *executor, uint64_t at_ms)
{
    static unsigned n;
    struct runner *r = book_runner_made(b, STR("r"));
    struct rollout *m = book_next_rollout(b, r, str_cstr(executor), at_ms, closed_queue, NULL);
    struct buf record = {0};
    char id[ATTEMPT_ID_LEN + 1];

    if (!m)
        return NULL;
    (void)snprintf(id, sizeof(id), "%032x", ++n);
    record_claim(m->group->spec.id,
                 &(struct record_claim){m->index, str_cstr(id), STR("w0-x"), str_cstr(executor)},
                 at_ms, &record);
    apply(b, &record);
    return book_attempt(b, str_cstr(id));
}

static inline void end(struct book *b, struct attempt *a, enum outcome outcome, uint64_t at_ms)
{
    struct result result = {.trained_tokens = 3};
    struct buf record = {0};

    record_end(a, outcome, END_FINALIZED, &result, at_ms, &record);
    apply(b, &record);
}

#endif
