/* A ring of waiting ids, and the number of running calls. */
#include "worker/engine/wire/session_ends.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/proc/metrics.h"

static void count_lost(struct metrics_page *page, size_t n)
{
    metrics_count(page, METRIC_engine_ends_lost, n);
}

void session_ends_add(struct session_ends *s, struct str session_id, struct metrics_page *page)
{
    if (s->n >= SESSION_ENDS_WAITING) {
        count_lost(page, 1);
        return;
    }
    if (!s->ring)
        s->ring = mem_calloc(SESSION_ENDS_WAITING, sizeof(*s->ring));
    s->ring[(s->first + s->n) % SESSION_ENDS_WAITING] = mem_strndup(session_id.p, session_id.len);
    s->n++;
}

/* Removes and returns the oldest id; NULL: there is none. */
static char *pop_oldest(struct session_ends *s)
{
    char *id;

    if (s->n == 0)
        return NULL;
    id = s->ring[s->first];
    s->first = (s->first + 1) % SESSION_ENDS_WAITING;
    s->n--;
    return id;
}

char *session_ends_next(struct session_ends *s)
{
    char *id = s->running < SESSION_ENDS_AT_ONCE ? pop_oldest(s) : NULL;

    s->running += id != NULL;
    return id;
}

void session_ends_over(struct session_ends *s, bool told, struct metrics_page *page)
{
    s->running--;
    count_lost(page, !told);
}

void session_ends_forget(struct session_ends *s)
{
    char *id;

    while ((id = pop_oldest(s)))
        free(id);
}

void session_ends_done(struct session_ends *s, struct metrics_page *page)
{
    count_lost(page, s->n + s->running);
    s->running = 0;
    session_ends_forget(s);
    free(s->ring);
    s->ring = NULL;
}
