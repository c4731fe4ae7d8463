/* Long texts of records, made ready in helpers (text_help.h). */
#include "worker/residency/text_help.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "common/proc/metrics.h"
#include "worker/residency/residency.h"
#include "worker/session/session.h"
#include "worker/session/session_texts.h"

enum {
    TEXTS_LONG = 4 << 20
}; /* a helper reads them for several milliseconds: helper_job.is_long */

/* What a helper does. Apart from its owner, for it is lost with a helper that is stuck. */
struct text_job {
    struct helper_job job;
    struct residency *residency;
    struct session *session;
    struct session_texts *texts;
    struct text_help *help; /* NULL: nobody waits any more */
    struct list_item item;  /* of residency->text_jobs */
};

/* In a helper. */
static void run_texts(struct helper_job *j, void *tool)
{
    (void)tool;
    session_texts_make(CONTAINER_OF(j, struct text_job, job)->texts);
}

static void count(struct metrics_page *page, const struct helper_job *j, enum helper_end end)
{
    if (j->began_us == 0)
        return;
    metrics_observe_us(page, METRIC_helper_wait, j->began_us - j->pushed_us);
    metrics_observe_us(page, METRIC_helper_work, j->ended_us - j->began_us);
    if (end == HELPER_STUCK)
        metrics_count(page, METRIC_helper_stuck, 1);
}

/* A stuck helper keeps the texts, and the job. */
static void on_texts(struct helper_job *j, enum helper_end end)
{
    struct text_job *t = CONTAINER_OF(j, struct text_job, job);
    struct text_help *h = t->help;
    struct err stuck = {0};

    count(t->residency->page, j, end);
    list_remove(&t->item);
    if (end == HELPER_STUCK)
        (void)err_set(&stuck, ERR_INTERNAL, "a helper is stuck in its messages");
    else if (h)
        session_texts_give(t->session, t->texts);
    else
        session_texts_free(t->texts);
    if (end != HELPER_STUCK)
        free(t);
    if (!h)
        return;
    h->job = NULL;
    h->done(h, end == HELPER_STUCK ? &stuck : NULL);
}

bool text_help_begin(struct text_help *h, struct residency *r, struct session *s, struct str record)
{
    struct session_texts *texts =
        r->helpers ? session_texts_take(s, record, &r->texts_bytes) : NULL;

    if (!texts)
        return false;
    h->job = mem_zalloc(sizeof(*h->job));
    *h->job = (struct text_job){.job = {.run = run_texts,
                                        .done = on_texts,
                                        .is_long = session_texts_bytes(texts) > TEXTS_LONG},
                                .residency = r,
                                .session = s,
                                .texts = texts,
                                .help = h};
    list_append(&r->text_jobs, &h->job->item);
    helpers_push(r->helpers, &h->job->job, session_id(s));
    return true;
}

void text_help_leave(struct text_help *h)
{
    struct text_job *t = h->job;

    if (!t)
        return;
    h->job = NULL;
    t->help = NULL;
    helpers_cancel(t->residency->helpers, &t->job);
}

void text_helps_end(struct residency *r, bool lost)
{
    struct text_job *t, *next;

    LIST_EACH_SAFE(&r->text_jobs, t, next, struct text_job, item) {
        list_remove(&t->item);
        if (t->help)
            t->help->job = NULL;
        if (lost)
            continue;
        session_texts_free(t->texts);
        free(t);
    }
}
