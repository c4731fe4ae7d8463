/* Compares the trainer's logprobs with the sampler's (run_board.h): tallies by weight version and
 * position, and the worst tokens. */
#include <math.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "common/proc/metrics.h"
#include "common/proc/run_board.h"
#include "common/proc/run_board_internal.h"

const uint32_t run_positions[RUN_POSITIONS] = {0, 16, 64, 256, 1024, 4096, 16384};

/* Bucket i counts |difference| up to SMALLEST * 10^(i / PER_DECADE). The last one counts all larger
 * ones. */
enum { PER_DECADE = 8, MINUTE_MS = 60 * 1000 };

static const double SMALLEST = 1e-5, UNIT = 1e9;

/* Larger differences count as this, because a logprob is hardly below -1e4. */
static const double DIFFERENCE_MAX = 1e5;

unsigned run_position_bucket(uint32_t position)
{
    unsigned i = RUN_POSITIONS - 1;

    while (i > 0 && position < run_positions[i])
        i--;
    return i;
}

static unsigned scale_of(double abs)
{
    double at = abs <= SMALLEST ? 0 : ceil(log10(abs / SMALLEST) * PER_DECADE);

    return at < RUN_SCALE - 1 ? (unsigned)at : RUN_SCALE - 1;
}

static void add_to(int64_t *sum, int64_t n)
{
    if (__builtin_add_overflow(*sum, n, sum))
        *sum = n < 0 ? INT64_MIN : INT64_MAX;
}

void run_mismatch_add(struct run_mismatch *m, double difference)
{
    double d = MAX_OF(MIN_OF(difference, DIFFERENCE_MAX), -DIFFERENCE_MAX), abs = fabs(d);

    if (isnan(difference))
        return;
    m->tokens++;
    add_to(&m->sum, llround(d * UNIT));
    add_to(&m->sum_abs, llround(abs * UNIT));
    m->max = MAX_OF(m->max, abs);
    m->scale[scale_of(abs)]++;
}

void run_mismatch_merge(struct run_mismatch *m, const struct run_mismatch *other)
{
    m->tokens += other->tokens;
    add_to(&m->sum, other->sum);
    add_to(&m->sum_abs, other->sum_abs);
    m->max = MAX_OF(m->max, other->max);
    for (int i = 0; i < RUN_SCALE; i++)
        m->scale[i] += other->scale[i];
}

double run_mismatch_p99(const struct run_mismatch *m)
{
    uint64_t want = (uint64_t)m->tokens - (uint64_t)m->tokens / 100, seen = 0;

    for (int i = 0; i < RUN_SCALE - 1; i++) {
        seen += m->scale[i];
        if (seen >= want)
            return MIN_OF(m->max, SMALLEST * pow(10, (double)i / PER_DECADE));
    }
    return m->max;
}

void run_mismatch_put(const struct run_mismatch *m, struct json_out *o)
{
    static const char *const names[] = {"mean", "mean_abs", "p99", "max"};
    double n = (double)m->tokens;
    double values[] = {(double)m->sum / 1e9 / n, (double)m->sum_abs / 1e9 / n, run_mismatch_p99(m),
                       m->max};

    json_out_member_i64(o, "tokens", m->tokens);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_out_key(o, names[i]);
        if (m->tokens > 0)
            json_out_double(o, values[i]);
        else
            json_out_null(o);
    }
}

/* Adds tallies to the slot of a minute. A slot of an earlier round is cleared before it gets the
 * new number, because a process may die in between. */
static void add_to_minute(struct run_board *b, unsigned row, uint32_t minute,
                          const struct run_mismatch positions[RUN_POSITIONS])
{
    uint32_t *stamp = &b->versions[row].minutes[minute % RUN_MINUTES];
    struct run_mismatch *to = b->mismatch[row][minute % RUN_MINUTES];

    if (*stamp != minute) {
        memset(to, 0, sizeof(b->mismatch[row][0]));
        __atomic_store_n(stamp, minute, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < RUN_POSITIONS; i++)
        run_mismatch_merge(&to[i], &positions[i]);
}

/* Frees a row. Its minutes that still count are added to the last row. */
static void replace_version(struct run_board *b, unsigned row, uint32_t now)
{
    struct run_version *v = &b->versions[row];

    for (unsigned i = 0; i < RUN_MINUTES; i++)
        if (v->minutes[i] > 0 && v->minutes[i] + RUN_MINUTES > now)
            add_to_minute(b, RUN_ROWS_MAX - 1, v->minutes[i], b->mismatch[row][i]);
    *v = (struct run_version){0};
}

/* Returns the row for a version: its own, else a free one, else the one that was silent longest. */
static unsigned find_version(struct run_board *b, struct str version, uint32_t now)
{
    char text[RUN_NAME_MAX];
    unsigned oldest = 0;

    run_copy_text(text, sizeof(text), version);
    for (unsigned i = 0; i < RUN_ROWS_MAX - 1; i++) {
        if (b->versions[i].newest_ms > 0 && strcmp(b->versions[i].name, text) == 0)
            return i;
        if (b->versions[i].newest_ms < b->versions[oldest].newest_ms)
            oldest = i;
    }
    if (b->versions[oldest].newest_ms > 0)
        replace_version(b, oldest, now);
    memcpy(b->versions[oldest].name, text, sizeof(text));
    return oldest;
}

void run_board_add_mismatch(struct run_board *b, struct metrics_page *page, struct str version,
                            const struct run_mismatch positions[RUN_POSITIONS], uint64_t now_ms)
{
    uint32_t minute = (uint32_t)(now_ms / MINUTE_MS);
    struct run_mismatch all = {0};
    unsigned row;

    if (!b)
        return;
    run_board_lock(b);
    row = version.len > 0 ? find_version(b, version, minute) : RUN_ROWS_MAX - 1;
    b->versions[row].newest_ms = now_ms;
    add_to_minute(b, row, minute, positions);
    run_board_unlock(b);
    for (int i = 0; i < RUN_POSITIONS; i++)
        run_mismatch_merge(&all, &positions[i]);
    metrics_add_at(page, METRIC_reported_tokens, 0, all.tokens);
    metrics_add_at(page, METRIC_reported_difference, 0, llround((double)all.sum / 1e3));
    metrics_add_at(page, METRIC_reported_abs_difference, 0, llround((double)all.sum_abs / 1e3));
}

/* --- the worst tokens --- */

static double distance(const struct run_token *t)
{
    return fabs((double)t->trained - (double)t->sampled);
}

static bool is_same(const struct run_token *a, const struct run_token *b)
{
    return a->position == b->position && strcmp(a->session, b->session) == 0 &&
           strcmp(a->response, b->response) == 0 && strcmp(a->reported, b->reported) == 0;
}

/* Removes what is older than the rings, and the token that a later report of t replaces. */
static void remove_tokens(struct run_board *b, const struct run_token *t, uint64_t now_ms)
{
    const uint64_t age_ms = (uint64_t)RUN_MINUTES * 60 * 1000;
    size_t n = 0;

    for (size_t i = 0; i < b->n_worst; i++)
        if (b->worst[i].at_ms + age_ms > now_ms && !(t && is_same(&b->worst[i], t)))
            b->worst[n++] = b->worst[i];
    b->n_worst = n;
}

bool run_board_wants_token(struct run_board *b, double difference, uint64_t now_ms)
{
    bool wanted;

    if (!b)
        return false;
    run_board_lock(b);
    remove_tokens(b, NULL, now_ms);
    wanted = b->n_worst < RUN_WORST || distance(&b->worst[RUN_WORST - 1]) < fabs(difference);
    run_board_unlock(b);
    return wanted;
}

void run_board_add_token(struct run_board *b, const struct run_token *t, uint64_t now_ms)
{
    size_t at;

    if (!b)
        return;
    run_board_lock(b);
    remove_tokens(b, t, now_ms);
    at = b->n_worst < RUN_WORST ? b->n_worst++ : RUN_WORST;
    for (; at > 0 && distance(&b->worst[at - 1]) < distance(t); at--)
        if (at < RUN_WORST)
            b->worst[at] = b->worst[at - 1];
    if (at < RUN_WORST)
        b->worst[at] = *t;
    run_board_unlock(b);
}

static void sum_version(const struct run_board *b, unsigned row, uint32_t from, uint32_t to,
                        struct run_mismatch_row *ret)
{
    const struct run_version *v = &b->versions[row];

    memcpy(ret->version, v->name, sizeof(ret->version));
    for (unsigned i = 0; i < RUN_MINUTES; i++)
        for (int k = 0; k < RUN_POSITIONS && v->minutes[i] >= from && v->minutes[i] < to; k++)
            run_mismatch_merge(&ret->positions[k], &b->mismatch[row][i][k]);
}

void run_board_read_mismatch(struct run_board *b, uint32_t from, uint32_t to,
                             struct run_mismatch_row ret[RUN_ROWS_MAX])
{
    memset(ret, 0, RUN_ROWS_MAX * sizeof(*ret));
    run_board_lock(b);
    for (unsigned row = 0; row < RUN_ROWS_MAX; row++)
        sum_version(b, row, MAX_OF(from, 1U), to, &ret[row]);
    run_board_unlock(b);
}

size_t run_board_read_worst(struct run_board *b, uint32_t from, uint32_t to,
                            struct run_token ret[RUN_WORST])
{
    size_t n = 0;

    run_board_lock(b);
    for (size_t i = 0; i < b->n_worst; i++) {
        uint64_t minute = b->worst[i].at_ms / MINUTE_MS;

        if (minute >= from && minute < to)
            ret[n++] = b->worst[i];
    }
    run_board_unlock(b);
    return n;
}
