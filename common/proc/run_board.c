/* Rows and rings of the run's figures (run_board.h). */
#include "common/proc/run_board.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/proc/metrics.h"
#include "common/proc/run_board_internal.h"

static const struct {
    const char *name;
    unsigned first, n; /* in run_board.rows */
} labels[RUN_LABELS] = {[RUN_TASK] = {"task", 0, RUN_TASKS},
                        [RUN_MODEL] = {"model", RUN_TASKS, RUN_MODELS},
                        [RUN_VERSION] = {"version", RUN_TASKS + RUN_MODELS, RUN_VERSIONS}};

static const struct {
    enum metric metric;
    unsigned label;
} metric_of[RUN_FIGURES] = {

#define FIGURE(field, kind, group, name, metric, label) [RUN_##field] = {METRIC_##metric, label},
#include "common/proc/run_figures.def"
};

enum { MINUTE_MS = 60 * 1000 };

const char *run_label_name(enum run_label label)
{
    return labels[label].name;
}

unsigned run_label_rows(enum run_label label)
{
    return labels[label].n - 1;
}

struct run_board *run_board_new(uint64_t now_ms)
{
    pthread_mutexattr_t shared;
    struct run_board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(b != MAP_FAILED);
    CHECK(pthread_mutexattr_init(&shared) == 0);
    CHECK(pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(&b->lock, &shared) == 0);
    (void)pthread_mutexattr_destroy(&shared);
    b->since_ms = now_ms;
    b->newest_version = -1;
    return b;
}

void run_board_free(struct run_board *b)
{
    if (b)
        (void)munmap(b, sizeof(*b));
}

void run_board_lock(struct run_board *b)
{
    if (pthread_mutex_lock(&b->lock) == EOWNERDEAD)
        (void)pthread_mutex_consistent(&b->lock);
}

void run_board_unlock(struct run_board *b)
{
    (void)pthread_mutex_unlock(&b->lock);
}

void run_copy_text(char *to, size_t size, struct str text)
{
    size_t n = MIN_OF(text.len, size - 1);

    while (n < text.len && n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    if (n > 0)
        memcpy(to, text.p, n);
    memset(to + n, 0, size - n);
}

/* --- rows --- */

void run_counts_add(struct run_counts *to, const struct run_counts *from)
{
    for (int i = 0; i < RUN_FIGURES; i++)
        if (__builtin_add_overflow(to->at[i], from->at[i], &to->at[i]))
            to->at[i] = from->at[i] < 0 ? INT64_MIN : INT64_MAX;
}

/* Returns the slot of a minute. Values of an earlier round are cleared before the slot gets the new
 * number, because a process may die in between. */
static struct run_counts *slot_of(struct run_series *s, uint32_t minute)
{
    unsigned i = minute % RUN_MINUTES;

    if (s->minutes[i] != minute) {
        s->counts[i] = (struct run_counts){0};
        __atomic_store_n(&s->minutes[i], minute, __ATOMIC_RELEASE);
    }
    return &s->counts[i];
}

static void add_to_row(struct run_series *s, uint32_t minute, const struct run_counts *counts)
{
    s->newest = MAX_OF(s->newest, minute);
    run_counts_add(slot_of(s, minute), counts);
}

/* Adds the minutes of a row that still count to a second row. */
static void move_minutes(struct run_series *from, struct run_series *to, uint32_t now)
{
    for (unsigned i = 0; i < RUN_MINUTES; i++) {
        if (from->minutes[i] > 0 && from->minutes[i] + RUN_MINUTES > now)
            add_to_row(to, from->minutes[i], &from->counts[i]);
    }
    *from = (struct run_series){0};
}

/* Returns the row for a name: its own, else a free one, else that of a silent name, else the last.
 */
static struct run_series *find_row(struct run_board *b, enum run_label label, struct str name,
                                   uint32_t minute)
{
    struct run_series *rows = b->rows + labels[label].first, *oldest = rows;
    unsigned last = labels[label].n - 1;
    char text[RUN_NAME_MAX];

    run_copy_text(text, sizeof(text), name);
    for (unsigned i = 0; i < last; i++) {
        if (rows[i].newest > 0 && strcmp(rows[i].name, text) == 0)
            return &rows[i];
        if (rows[i].newest < oldest->newest)
            oldest = &rows[i];
    }
    if (oldest->newest + RUN_SILENT_MINUTES > minute)
        return &rows[last];
    if (oldest->newest > 0)
        move_minutes(oldest, &rows[last], minute);
    memcpy(oldest->name, text, sizeof(text));
    return oldest;
}

/* --- the slowest --- */

static void add_ended(struct run_board *b, uint32_t minute, const struct run_ended *x)
{
    struct run_minute *m = &b->minutes[minute % RUN_MINUTES];
    size_t at;

    if (m->minute != minute) { /* cleared before it gets its number, as in slot_of */
        m->n = 0;
        __atomic_store_n(&m->minute, minute, __ATOMIC_RELEASE);
    }
    for (at = m->n; at > 0 && m->slowest[at - 1].run_us < x->run_us; at--)
        if (at < RUN_SLOWEST)
            m->slowest[at] = m->slowest[at - 1];
    if (at < RUN_SLOWEST)
        m->slowest[at] = *x;
    m->n = MIN_OF(m->n + 1, (uint32_t)RUN_SLOWEST);
}

size_t run_board_read_slowest(struct run_board *b, uint32_t from, uint32_t to,
                              struct run_ended ret[RUN_WORST])
{
    size_t n = 0;

    run_board_lock(b);
    for (unsigned i = 0; i < RUN_MINUTES; i++) {
        const struct run_minute *m = &b->minutes[i];

        for (uint32_t k = 0; k < m->n && m->minute >= from && m->minute < to; k++) {
            size_t at = n < RUN_WORST ? n++ : RUN_WORST;

            for (; at > 0 && ret[at - 1].run_us < m->slowest[k].run_us; at--)
                if (at < RUN_WORST)
                    ret[at] = ret[at - 1];
            if (at < RUN_WORST)
                ret[at] = m->slowest[k];
        }
    }
    run_board_unlock(b);
    return n;
}

/* --- adding and reading --- */

static void count_metrics(struct metrics_page *page, const struct run_counts *c)
{
    for (int i = 0; i < RUN_FIGURES; i++)
        if (metric_of[i].metric != METRIC_COUNT && c->at[i] != 0)
            metrics_add_at(page, metric_of[i].metric, metric_of[i].label, c->at[i]);
}

void run_board_add(struct run_board *b, struct metrics_page *page, const struct run_event *event,
                   uint64_t now_ms)
{
    uint32_t minute = (uint32_t)(now_ms / MINUTE_MS);

    if (!b)
        return;
    if (!event->evaluation)
        count_metrics(page, &event->counts);
    run_board_lock(b);
    if (event->evaluation) {
        add_to_row(&b->evaluation, minute, &event->counts);
    } else {
        add_to_row(&b->total, minute, &event->counts);
        for (int i = 0; i < RUN_LABELS; i++)
            if (event->names[i].len > 0)
                add_to_row(find_row(b, (enum run_label)i, event->names[i], minute), minute,
                           &event->counts);
        if (event->ended)
            add_ended(b, minute, event->ended);
    }
    run_board_unlock(b);
}

void run_board_read(struct run_board *b, bool evaluation, struct run_series *ret)
{
    run_board_lock(b);
    *ret = evaluation ? b->evaluation : b->total;
    run_board_unlock(b);
}

unsigned run_board_read_rows(struct run_board *b, enum run_label label,
                             struct run_series ret[RUN_ROWS_MAX])
{
    run_board_lock(b);
    memcpy(ret, &b->rows[labels[label].first], labels[label].n * sizeof(*ret));
    run_board_unlock(b);
    return labels[label].n;
}

uint64_t run_board_since(const struct run_board *b)
{
    return b->since_ms;
}

int64_t run_board_newest_version(struct run_board *b, int64_t version, uint64_t began_ms)
{
    int64_t newest;

    run_board_lock(b);
    if (began_ms >= b->version_set_ms)
        b->newest_version = MAX_OF(b->newest_version, version);
    newest = b->newest_version;
    run_board_unlock(b);
    return newest;
}

void run_board_set_version(struct run_board *b, int64_t version, uint64_t now_ms)
{
    run_board_lock(b);
    b->newest_version = version;
    b->version_set_ms = now_ms;
    run_board_unlock(b);
}
