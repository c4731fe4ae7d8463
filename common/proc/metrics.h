/*
 * Metrics: one page of 64-bit cells per process, in shared memory made before the first fork. Each
 * process adds to its own page with relaxed atomics. Any process reads all pages, so any router can
 * answer for the whole gateway. A dead child's counts survive: its successor continues on the same
 * page, and the supervisor resets its gauges. metrics.def lists every metric; no metric is made at
 * run time.
 *
 *     metrics_count(page, METRIC_tokens_prompt, n);
 *     metrics_count_at(page, METRIC_requests, METRIC_DIALECT_CHAT, METRIC_STATUS_200, 1);
 */
#ifndef RG_PROC_METRICS_H
#define RG_PROC_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum metric {

#define X(field, kind, name, label1, label2, help) METRIC_##field,
#include "common/proc/metrics.def"
    METRIC_COUNT
};

/* The values of each label: METRIC_DIALECT_CHAT ... */
#define V(value, text) METRIC_##value,
#define L(label, name, values) enum metric_label_##label{values METRIC_##label##_VALUES};
#include "common/proc/metrics.def"

struct buf;
struct metrics;
struct metrics_page;

/* Makes shared memory for `slots` processes. The supervisor calls it once; children inherit the
 * result. Untouched pages use no memory. */
struct metrics *metrics_new(size_t slots);
void metrics_free(struct metrics *m);

/* Returns slot i's page, borrowed. The name ("worker-3", copied, cut at 31 bytes) labels its
 * PROCESS samples. A page counts in the sums once it has a name. NULL keeps the name. */
struct metrics_page *metrics_page(struct metrics *m, size_t slot, const char *name);

/* Zeroes the gauges of a page whose process has ended. Counters and histograms keep their values.
 */
void metrics_reset_gauges(struct metrics_page *page);

/* Labels whose values are names that appear at run time. */
enum metric_names { METRIC_NAMES_RUNNER, METRIC_NAMES_QUEUE, METRIC_NAMES };

/* Returns the label value of a name, for all processes and their successors. If there are too many
 * names, returns the last value of the label (METRIC_RUNNER_OTHER ...). Only one process may add
 * names. Long ones are cut at 63 bytes. m may be NULL. */
unsigned metrics_name(struct metrics *m, enum metric_names which, struct str name);

/* Adds to a counter. `page` may be NULL (nothing is counted): tools run the same code without
 * pages. */
void metrics_count_at(struct metrics_page *page, enum metric id, unsigned v1, unsigned v2,
                      uint64_t n);

static inline void metrics_count(struct metrics_page *page, enum metric id, uint64_t n)
{
    metrics_count_at(page, id, 0, 0, n);
}

/* Adds n to a counter or a sum. Only a sum (kind SUM, in millionths) accepts a negative n. */
void metrics_add_at(struct metrics_page *page, enum metric id, unsigned v1, int64_t n);

/* Sets a gauge, or moves it by a signed amount. Values never go below 0. */
void metrics_set_at(struct metrics_page *page, enum metric id, unsigned v1, uint64_t value);
void metrics_set_cell(struct metrics_page *page, enum metric id, unsigned v1, unsigned v2,
                      uint64_t value);
void metrics_move_at(struct metrics_page *page, enum metric id, unsigned v1, int64_t delta);

static inline void metrics_set(struct metrics_page *page, enum metric id, uint64_t value)
{
    metrics_set_at(page, id, 0, value);
}

static inline void metrics_move(struct metrics_page *page, enum metric id, int64_t delta)
{
    metrics_move_at(page, id, 0, delta);
}

/* Adds one observation to a histogram. */
void metrics_observe_us(struct metrics_page *page, enum metric id, uint64_t microseconds);

/* Returns the label value of an HTTP status; "other" if it has none of its own. */
enum metric_label_STATUS metrics_status(int status);

/* Returns the sum of one cell over all pages; for tests, `rollgate top` and limits. */
uint64_t metrics_read(const struct metrics *m, enum metric id, unsigned v1, unsigned v2);

/* Begin of a comment line in metrics. The line is first on a page of a node with peers, and names
 * the peers' workers. */
#define METRICS_UNREACHABLE "# unreachable: "

/* Appends Prometheus text (format 0.0.4), families in the order of metrics.def. */
void metrics_render(const struct metrics *m, struct buf *out);

#endif
