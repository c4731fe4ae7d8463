/*
 * Metrics: one page of 64-bit cells per process, in shared memory made before the first fork.
 * Each process adds to its own page with relaxed atomics; any process reads all pages, so any
 * router can answer for the whole gateway and a dead child's counts survive it (its successor
 * counts on in the same page; its gauges are reset by the supervisor).
 * What there is to count stands in metrics.def only: no names made at run time.
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

/* Shared memory for `slots` processes; made once by the supervisor, inherited by the children.
 * Untouched pages cost no memory. */
struct metrics *metrics_new(size_t slots);
void metrics_free(struct metrics *m);

/* Slot i's page, borrowed. The name ("worker-3", copied, cut at 31 bytes) labels its PROCESS
 * samples; a page takes part in the sums from its first naming on. NULL keeps the name. */
struct metrics_page *metrics_page(struct metrics *m, size_t slot, const char *name);

/* Zeroes the gauges of a page whose process is gone; counters and histograms stay. */
void metrics_reset_gauges(struct metrics_page *page);

/* Labels whose values are names that come at run time. */
enum metric_names { METRIC_NAMES_RUNNER, METRIC_NAMES_QUEUE, METRIC_NAMES };

/* The label value of a name, for all processes and their successors; the last value of the label
 * (METRIC_RUNNER_OTHER ...) once there are too many. One process at a time makes names. Long ones
 * are cut at 63 bytes. m may be NULL. */
unsigned metrics_name(struct metrics *m, enum metric_names which, struct str name);

/* Counters. `page` may be NULL (nothing is counted): tools run the same code without pages. */
void metrics_count_at(struct metrics_page *page, enum metric id, unsigned v1, unsigned v2,
                      uint64_t n);

static inline void metrics_count(struct metrics_page *page, enum metric id, uint64_t n)
{
    metrics_count_at(page, id, 0, 0, n);
}

/* Counters and sums: adds n, which only a sum (kind SUM, in millionths) may have negative. */
void metrics_add_at(struct metrics_page *page, enum metric id, unsigned v1, int64_t n);

/* Gauges: set, or move by a signed amount. Values never go below 0. */
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

/* Histograms. */
void metrics_observe_us(struct metrics_page *page, enum metric id, uint64_t microseconds);

/* The label value of an HTTP status. */
enum metric_label_STATUS metrics_status(int status);

/* Sum of one cell over all pages; for tests, `rollgate top` and limits. */
uint64_t metrics_read(const struct metrics *m, enum metric id, unsigned v1, unsigned v2);

/* How the comment begins that names, first on a page of a node with peers, their workers. */
#define METRICS_UNREACHABLE "# unreachable: "

/* Appends Prometheus text (format 0.0.4), families in the order of metrics.def. */
void metrics_render(const struct metrics *m, struct buf *out);

#endif
