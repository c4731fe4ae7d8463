/* The runners of a book. Runners that a group has named have lanes and are never removed: groups,
 * attempts and claims point to them. Of the other runners, which only executors have named, the
 * newest are kept. */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "dispatcher/book.h"

static void runner_free(struct runner *r)
{
    for (size_t i = 0; i < r->lanes.n; i++)
        free(r->lanes.at[i]);
    vec_done(&r->lanes);
    free(r->name);
    free(r);
}

void book_runners_done(struct book *b)
{
    for (size_t i = 0; i < b->runners.n; i++)
        runner_free(b->runners.at[i]);
    vec_done(&b->runners);
    map_done(&b->runners_by_name);
}

struct runner *book_runner(const struct book *b, struct str name)
{
    return map_get(&b->runners_by_name, name);
}

static void leave_unasked(struct book *b, struct runner *r)
{
    if (!list_holds(&r->unasked))
        return;
    list_remove(&r->unasked);
    b->n_unasked--;
}

struct runner *book_runner_made(struct book *b, struct str name)
{
    struct runner *r;

    name.len = strnlen(name.p, name.len); /* the stored name ends at the first NUL */
    r = book_runner(b, name);

    if (r) {
        leave_unasked(b, r);
        return r;
    }
    r = mem_zalloc(sizeof(*r));
    r->name = mem_strndup(name.p, name.len);
    r->at = b->runners.n;
    *vec_push(&b->runners) = r;
    (void)map_set(&b->runners_by_name, str_cstr(r->name), r);
    return r;
}

/* Frees a runner that no group has named, so that nothing points to it. */
static void runner_drop(struct book *b, struct runner *r)
{
    struct runner *last = vec_pop(&b->runners);

    if (last != r) {
        last->at = r->at;
        b->runners.at[r->at] = last;
    }
    leave_unasked(b, r);
    (void)map_take(&b->runners_by_name, str_cstr(r->name));
    runner_free(r);
}

void book_runner_withdraw(struct book *b, struct runner *r)
{
    if (r->lanes.n > 0 || list_holds(&r->unasked))
        return;
    list_append(&b->unasked, &r->unasked);
    if (++b->n_unasked > UNASKED_MAX)
        runner_drop(b, LIST_FIRST_OF(&b->unasked, struct runner, unasked));
}
