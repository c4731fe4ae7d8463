#include "dispatcher/waits.h"

#include "common/base/buf.h"
#include "common/base/nearest.h"
#include "dispatcher/book.h"

enum { OFFERED_MS = 60000, NAMES_MAX = 8 };

bool waits_is_offered(const struct runner *r, uint64_t mono_ms)
{
    return r->running > 0 || (r->offered_ms > 0 && mono_ms - r->offered_ms <= OFFERED_MS);
}

static bool is_queue_full(const struct queue *q, const struct waits_now *now)
{
    return q && now->settled_max > 0 && q->offered + q->taken >= now->settled_max;
}

static void write_full(const struct queue *q, struct buf *out)
{
    buf_printf(out,
               "the queue holds %llu settled groups that are not acknowledged "
               "(--queue-max-settled)",
               (unsigned long long)q->offered + q->taken);
}

void waits_of_runner(const struct runner *r, const struct queue *q, const struct waits_now *now,
                     struct buf *out)
{
    if (now->pause)
        buf_puts(out, now->pause);
    else if (r->blocked)
        buf_puts(out, "its attempts fail one after the other");
    else if (!waits_is_offered(r, now->mono_ms))
        buf_puts(out, "no executor offers it");
    else if (is_queue_full(q, now))
        write_full(q, out);
}

/* Appends up to NAMES_MAX names, and the name that was probably meant. */
static void write_names(const char *const *names, size_t n, size_t total, struct str asked,
                        struct buf *out)
{
    struct nearest near = nearest_to(asked);

    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%s", i ? ", " : "", names[i]);
        nearest_offer(&near, names[i]);
    }
    if (total > n)
        buf_printf(out, " and %zu more", total - n);
    if (near.name)
        buf_printf(out, "; did you mean \"%s\"?", near.name);
}

void waits_not_offered(const struct book *b, const struct runner *r, uint64_t mono_ms,
                       struct buf *out)
{
    const char *names[NAMES_MAX];
    size_t n = 0, total = 0;

    buf_printf(out, "no executor offers runner \"%s\"", r->name);
    for (size_t i = 0; i < b->runners.n; i++) {
        const struct runner *other = b->runners.at[i];

        if (!waits_is_offered(other, mono_ms))
            continue;
        total++;
        if (n < NAMES_MAX)
            names[n++] = other->name;
    }
    buf_puts(out, total ? "; offered: " : "; no executor offers any");
    write_names(names, n, total, str_cstr(r->name), out);
}

void waits_no_queue(const struct book *b, struct str name, struct buf *out)
{
    const char *names[NAMES_MAX];
    size_t n = 0;

    for (; n < b->queues.n && n < NAMES_MAX; n++)
        names[n] = b->queues.at[n]->name;
    buf_printf(out, "no group of queue \"%.*s\" is known%s", (int)MIN_OF(name.len, (size_t)128),
               name.p, n ? "; queues: " : ", nor of any other queue");
    write_names(names, n, b->queues.n, name, out);
    if (book_has_lost(b))
        buf_puts(out, "; a lost node alone may have had its groups: submit them again");
}

void waits_of_group(const struct book *b, const struct group *g, const struct waits_now *now,
                    struct buf *out)
{
    const struct runner *r = g->runner;
    uint64_t due_ms;

    if (group_settled(g))
        return;
    if (g->waiting == 0) {
        if (now->engines_away)
            buf_puts(out, "no engine answers: calls of its attempts wait");
    } else if (now->pause || r->blocked) {
        waits_of_runner(r, g->queue, now, out);
    } else if (!waits_is_offered(r, now->mono_ms)) {
        waits_not_offered(b, r, now->mono_ms, out);
    } else if (is_queue_full(g->queue, now)) {
        write_full(g->queue, out);
    } else if ((due_ms = group_due_ms(g)) == UINT64_MAX) {
        return; /* the group's attempts begin */
    } else if (due_ms > now->wall_ms) {
        buf_printf(out, "after a failure of infrastructure the next attempt begins in %llu s",
                   (unsigned long long)(due_ms - now->wall_ms + 999) / 1000);
    } else if (r->slots == 0) {
        buf_printf(out, "no executor has a free slot for runner \"%s\"; %llu of its attempts run",
                   r->name, (unsigned long long)r->running);
    }
}
