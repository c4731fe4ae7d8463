/* Counters in shared memory (metrics.h): one page for each process slot, written with relaxed
 * atomics. The process that answers /metrics sums over the pages. A successor process continues
 * with its slot's counters, so sums never fall.
 *
 *   used flags | page 0 | page 1 | ... | names of labels that appear at run time */

#include "common/proc/metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"

/* A page is a name and cells. The cells of a metric are contiguous from offsets[id]: v1 * width2 +
 * v2 for counters and gauges. A histogram has its buckets (not cumulative), then the sum in
 * microseconds. A gauge cell has GAUGE_SET after it was set. So a labelled gauge that is never used
 * (engine 15) is not shown, but a gauge that fell to 0 is. */
enum metric_kind { COUNTER, COUNTER_US, SUM, GAUGE, PROCESS, PROCESS_US, HISTOGRAM };

enum { NAME_MAX_BYTES = 32, NAMED_MAX_BYTES = 64, NAMED_MAX = 32 };

static const uint64_t GAUGE_SET = UINT64_C(1) << 63;

static const uint64_t bounds_us[] = {
    500,      1000,     2500,      5000,      10000,     25000,   50000,
    100000,   250000,   500000,    1000000,   2500000,   5000000, 10000000,
    30000000, 60000000, 120000000, 300000000, 600000000,
};

enum { BUCKETS = ARRAY_LEN(bounds_us) + 1, HISTOGRAM_CELLS = BUCKETS + 1 };

struct label_set {
    const char *name;
    const char *const *values;
    unsigned n;
};

#define V(value, text) text,
#define L(label, name, values) static const char *const texts_##label[] = {values};
#include "common/proc/metrics.def"

#define L(label, name, values) \
    static const struct label_set label_##label = {name, texts_##label, ARRAY_LEN(texts_##label)};
#include "common/proc/metrics.def"

static const struct {
    enum metric_kind kind;
    const char *name;
    const struct label_set *label1, *label2;
    const char *help;
} rows[] = {

#define X(field, kind, name, label1, label2, help) \
    [METRIC_##field] = {kind, "rollgate_" name, &label_##label1, &label_##label2, help},
#include "common/proc/metrics.def"
};

/* METRIC_*_VALUES as constants, from which each metric's offset in a page is computed. */
enum {

#define WIDTH_COUNTER(a, b) ((a) * (b))
#define WIDTH_COUNTER_US(a, b) ((a) * (b))
#define WIDTH_SUM(a, b) ((a) * (b))
#define WIDTH_GAUGE(a, b) ((a) * (b))
#define WIDTH_PROCESS(a, b) ((a) * (b))
#define WIDTH_PROCESS_US(a, b) ((a) * (b))
#define WIDTH_HISTOGRAM(a, b) HISTOGRAM_CELLS
#define X(field, kind, name, label1, label2, help) \
    AT_##field,                                    \
        AT_END_##field =                           \
            AT_##field +                           \
            WIDTH_##kind((int)METRIC_##label1##_VALUES, (int)METRIC_##label2##_VALUES) - 1,
#include "common/proc/metrics.def"
    CELLS
};

static const unsigned offsets[] = {
#define X(field, kind, name, label1, label2, help) [METRIC_##field] = AT_##field,
#include "common/proc/metrics.def"
};

struct metrics_page {
    char name[NAME_MAX_BYTES];
    _Atomic uint64_t cells[CELLS];
};

/* The texts of one label whose values appear at run time. */
struct name_row {
    char text[NAMED_MAX_BYTES];
};

static const struct {
    const struct label_set *label;
    unsigned n; /* number of values that can be named: all except the last */
} named[METRIC_NAMES] = {{&label_RUNNER, METRIC_RUNNER_OTHER}, {&label_QUEUE, METRIC_QUEUE_OTHER}};

/* The slots that have a name, in the order of their naming. The supervisor adds slots; every
 * process reads them. */
struct named_slots {
    _Atomic uint32_t n;
    uint16_t at[];
};

struct metrics {
    size_t slots;
    size_t stride;
    size_t total;
    char *base;                          /* the pages */
    struct named_slots *in_use;          /* shared, too; before the pages */
    struct name_row (*names)[NAMED_MAX]; /* shared, too; after the pages */
};

static size_t page_up(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (n + page - 1) / page * page;
}

/* Returns the bytes that precede the pages. */
static size_t head_size(size_t slots)
{
    return page_up(sizeof(struct named_slots) + slots * sizeof(uint16_t));
}

struct metrics *metrics_new(size_t slots)
{
    struct metrics *m = mem_zalloc(sizeof(*m));
    size_t head = head_size(slots);
    char *map;

    m->slots = slots;
    m->stride = page_up(sizeof(struct metrics_page));
    m->total = head + slots * m->stride + page_up(METRIC_NAMES * sizeof(*m->names));
    map = mmap(NULL, m->total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
    CHECK(map != MAP_FAILED);
    m->in_use = (struct named_slots *)(void *)map;
    m->base = map + head;
    m->names = (struct name_row(*)[NAMED_MAX])(void *)(m->base + slots * m->stride);
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    (void)munmap(m->base - head_size(m->slots), m->total);
    free(m);
}

static struct metrics_page *page_at(const struct metrics *m, size_t slot)
{
    return (struct metrics_page *)(void *)(m->base + slot * m->stride);
}

static void put_to_use(struct named_slots *in_use, size_t slot)
{
    uint32_t n = atomic_load_explicit(&in_use->n, memory_order_relaxed);

    for (uint32_t i = 0; i < n; i++)
        if (in_use->at[i] == slot)
            return;
    in_use->at[n] = (uint16_t)slot;
    atomic_store_explicit(&in_use->n, n + 1, memory_order_release);
}

struct metrics_page *metrics_page(struct metrics *m, size_t slot, const char *name)
{
    struct metrics_page *page;

    CHECK(slot < m->slots && slot <= UINT16_MAX);
    page = page_at(m, slot);
    if (name) {
        (void)snprintf(page->name, sizeof(page->name), "%s", name);
        put_to_use(m->in_use, slot);
    }
    return page;
}

/* A new name takes a free slot. Without a free slot it shares the last value. */
unsigned metrics_name(struct metrics *m, enum metric_names which, struct str name)
{
    struct str cut = str_sub(name, 0, NAMED_MAX_BYTES - 1);

    for (unsigned i = 0; m && i < named[which].n; i++) {
        char *text = m->names[which][i].text;

        if (!text[0] && cut.len > 0)
            memcpy(text, cut.p, cut.len); /* the rest of the slot is zero already */
        if (str_eq_c(cut, text))
            return i;
    }
    return named[which].n;
}

void metrics_reset_gauges(struct metrics_page *page)
{
    for (unsigned id = 0; id < METRIC_COUNT; id++) {
        unsigned cells = rows[id].label1->n * rows[id].label2->n;

        if (rows[id].kind != GAUGE && rows[id].kind != PROCESS && rows[id].kind != PROCESS_US)
            continue;
        for (unsigned i = 0; i < cells; i++)
            atomic_store_explicit(&page->cells[offsets[id] + i], 0, memory_order_relaxed);
    }
}

static unsigned cell_of(enum metric id, unsigned v1, unsigned v2)
{
    CHECK(v1 < rows[id].label1->n && v2 < rows[id].label2->n);
    return offsets[id] + v1 * rows[id].label2->n + v2;
}

void metrics_count_at(struct metrics_page *page, enum metric id, unsigned v1, unsigned v2,
                      uint64_t n)
{
    if (page)
        atomic_fetch_add_explicit(&page->cells[cell_of(id, v1, v2)], n, memory_order_relaxed);
}

void metrics_add_at(struct metrics_page *page, enum metric id, unsigned v1, int64_t n)
{
    CHECK(rows[id].kind == SUM || n >= 0);
    metrics_count_at(page, id, v1, 0, (uint64_t)n);
}

void metrics_set_cell(struct metrics_page *page, enum metric id, unsigned v1, unsigned v2,
                      uint64_t value)
{
    if (page)
        atomic_store_explicit(&page->cells[cell_of(id, v1, v2)], value | GAUGE_SET,
                              memory_order_relaxed);
}

void metrics_set_at(struct metrics_page *page, enum metric id, unsigned v1, uint64_t value)
{
    metrics_set_cell(page, id, v1, 0, value);
}

void metrics_move_at(struct metrics_page *page, enum metric id, unsigned v1, int64_t delta)
{
    _Atomic uint64_t *cell;
    uint64_t old, next;

    if (!page)
        return;
    cell = &page->cells[cell_of(id, v1, 0)];
    old = atomic_load_explicit(cell, memory_order_relaxed);
    do {
        int64_t value = (int64_t)(old & ~GAUGE_SET) + delta;

        next = (uint64_t)MAX_OF(value, 0) | GAUGE_SET;
    } while (!atomic_compare_exchange_weak_explicit(cell, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void metrics_observe_us(struct metrics_page *page, enum metric id, uint64_t microseconds)
{
    unsigned bucket = 0;

    if (!page)
        return;
    CHECK(rows[id].kind == HISTOGRAM);
    while (bucket < ARRAY_LEN(bounds_us) && microseconds > bounds_us[bucket])
        bucket++;
    atomic_fetch_add_explicit(&page->cells[offsets[id] + bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->cells[offsets[id] + BUCKETS], microseconds,
                              memory_order_relaxed);
}

enum metric_label_STATUS metrics_status(int status)
{
    char text[] = {(char)('0' + status / 100), (char)('0' + status / 10 % 10),
                   (char)('0' + status % 10), '\0'};

    for (unsigned i = 0; i < METRIC_STATUS_OTHER; i++) {
        if (strcmp(texts_STATUS[i], text) == 0)
            return (enum metric_label_STATUS)i;
    }
    return METRIC_STATUS_OTHER;
}

/* Returns the sum over pages. *ret_set: any page has ever set the gauge. */
static uint64_t sum_cell(const struct metrics *m, unsigned cell, bool *ret_set)
{
    uint32_t n = atomic_load_explicit(&m->in_use->n, memory_order_acquire);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t v =
            atomic_load_explicit(&page_at(m, m->in_use->at[i])->cells[cell], memory_order_relaxed);

        if (v & GAUGE_SET)
            *ret_set = true;
        sum += v & ~GAUGE_SET;
    }
    return sum;
}

/* Returns the sum over pages of a cell that may be negative. */
static int64_t sum_signed(const struct metrics *m, unsigned cell)
{
    uint32_t n = atomic_load_explicit(&m->in_use->n, memory_order_acquire);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum +=
            atomic_load_explicit(&page_at(m, m->in_use->at[i])->cells[cell], memory_order_relaxed);
    return (int64_t)sum;
}

uint64_t metrics_read(const struct metrics *m, enum metric id, unsigned v1, unsigned v2)
{
    bool set = false;

    return sum_cell(m, cell_of(id, v1, v2), &set);
}

/* Appends a value; microseconds are written as seconds. */
static void add_value(struct buf *out, uint64_t v, bool microseconds)
{
    if (microseconds)
        buf_printf(out, "%llu.%06llu\n", (unsigned long long)(v / 1000000),
                   (unsigned long long)(v % 1000000));
    else
        buf_printf(out, "%llu\n", (unsigned long long)v);
}

/* Appends a label's text. A name from outside is escaped as the format requires. */
static void add_text(const struct metrics *m, const struct label_set *l, unsigned v,
                     struct buf *out)
{
    const char *text = l->values[v];

    for (unsigned i = 0; i < METRIC_NAMES; i++)
        if (named[i].label == l && v < named[i].n)
            text = m->names[i][v].text;
    for (; *text; text++) {
        if (*text == '\n')
            buf_puts(out, "\\n");
        else if (*text == '"' || *text == '\\')
            buf_printf(out, "\\%c", *text);
        else
            buf_add_c(out, *text);
    }
}

/* Appends the labels of a sample: up to two. */
static void add_labels(const struct metrics *m, struct buf *out, enum metric id, unsigned v1,
                       unsigned v2)
{
    const struct label_set *a = rows[id].label1, *b = rows[id].label2;

    if (!a->name[0])
        return;
    buf_printf(out, "{%s=\"", a->name);
    add_text(m, a, v1, out);
    if (b->name[0]) {
        buf_printf(out, "\",%s=\"", b->name);
        add_text(m, b, v2, out);
    }
    buf_puts(out, "\"}");
}

/* Writes counters and summed gauges. Families with two labels show only cells above 0. Others show
 * all values of their label, but only gauges that were ever set. */
static void render_sums(const struct metrics *m, enum metric id, struct buf *out)
{
    bool us = rows[id].kind == COUNTER_US;

    for (unsigned v1 = 0; v1 < rows[id].label1->n; v1++) {
        for (unsigned v2 = 0; v2 < rows[id].label2->n; v2++) {
            bool set = false;
            uint64_t v = sum_cell(m, cell_of(id, v1, v2), &set);

            if (v == 0 && !set && (rows[id].label2->name[0] || rows[id].label1->n > 12))
                continue;
            buf_puts(out, rows[id].name);
            add_labels(m, out, id, v1, v2);
            buf_add_c(out, ' ');
            add_value(out, v, us);
        }
    }
}

/* Writes sums; millionths become decimals. */
static void render_signed(const struct metrics *m, enum metric id, struct buf *out)
{
    int64_t v = sum_signed(m, offsets[id]);
    uint64_t size = v < 0 ? -(uint64_t)v : (uint64_t)v;

    buf_printf(out, "%s %s", rows[id].name, v < 0 ? "-" : "");
    add_value(out, size, true);
}

/* Writes one line for each process. */
static void render_processes(const struct metrics *m, enum metric id, struct buf *out)
{
    uint32_t n = atomic_load_explicit(&m->in_use->n, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++) {
        const struct metrics_page *page = page_at(m, m->in_use->at[i]);
        uint64_t v = atomic_load_explicit(&page->cells[offsets[id]], memory_order_relaxed);

        if (!(v & GAUGE_SET))
            continue;
        buf_printf(out, "%s{process=\"%s\"} ", rows[id].name, page->name);
        add_value(out, v & ~GAUGE_SET, rows[id].kind == PROCESS_US);
    }
}

/* Writes a histogram; buckets become cumulative. */
static void render_histogram(const struct metrics *m, enum metric id, struct buf *out)
{
    uint64_t total = 0;
    bool set;

    for (unsigned i = 0; i < BUCKETS; i++) {
        total += sum_cell(m, offsets[id] + i, &set);
        if (i < ARRAY_LEN(bounds_us))
            buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", rows[id].name,
                       (double)bounds_us[i] / 1e6, (unsigned long long)total);
        else
            buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n", rows[id].name,
                       (unsigned long long)total);
    }
    buf_printf(out, "%s_sum ", rows[id].name);
    add_value(out, sum_cell(m, offsets[id] + BUCKETS, &set), true);
    buf_printf(out, "%s_count %llu\n", rows[id].name, (unsigned long long)total);
}

void metrics_render(const struct metrics *m, struct buf *out)
{
    static const char *const types[] = {
        [COUNTER] = "counter",    [COUNTER_US] = "counter", [SUM] = "gauge",
        [GAUGE] = "gauge",        [PROCESS] = "gauge",      [PROCESS_US] = "gauge",
        [HISTOGRAM] = "histogram"};

    buf_puts(out, "# HELP rollgate_build_info The running version\n"
                  "# TYPE rollgate_build_info gauge\n"
                  "rollgate_build_info{version=\"" RG_VERSION "\"} 1\n");
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        enum metric id = (enum metric)i;

        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[id].name, rows[id].help, rows[id].name,
                   types[rows[id].kind]);
        if (rows[id].kind == HISTOGRAM)
            render_histogram(m, id, out);
        else if (rows[id].kind == PROCESS || rows[id].kind == PROCESS_US)
            render_processes(m, id, out);
        else if (rows[id].kind == SUM)
            render_signed(m, id, out);
        else
            render_sums(m, id, out);
    }
}
