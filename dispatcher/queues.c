/* /queues: counts, the next settled groups, acknowledge, return, cancel. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/durable.h"
#include "dispatcher/result.h"
#include "dispatcher/waits.h"

enum {
    NEXT_MAX = 256,
    WAIT_MAX_S = 3600,
    LEASE_DEFAULT_MS = 600000,
    LEASE_MAX_S = 7 * 86400,
    UNKNOWN_AGAIN_MS = 60000
};

void queues_get(struct desk_request *r)
{
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    struct waits_now now = desk_waits_now(r->desk);

    json_out_obj(&o);
    result_write_queue_members(&r->desk->book, r->name, book_queue(&r->desk->book, r->name), &now,
                               &o);
    desk_put_unreachable(r->desk, &o);
    json_out_end_obj(&o);
    desk_json(r->x, 200, &body);
    buf_done(&body);
}

/* --- next --- */

struct next {
    struct str queue; /* in the same block as this struct */
    uint64_t max, lease_ms;
    unsigned states;
    bool submitted;
};

/* Returns the next group to deliver, or NULL. Skips groups whose sessions are being sought. */
static struct group *find_next(struct desk *d, struct queue *q, const struct next *n)
{
    struct group *g;

    do
        g = book_next_group(q, n->states, n->submitted);
    while (g && losses_seek(d, g));
    return g;
}

/* Takes up to `max` groups and writes them. Fails if groups are available but none can be taken. If
 * the trainer has left, the end of the lease returns them. */
static void deliver_groups(struct desk *d, struct exchange *x, const struct next *n)
{
    struct desk_answer *a = durable_begin(d, x);
    struct waits_now now = desk_waits_now(d);
    struct queue *q = book_queue(&d->book, n->queue);
    struct json_out o = json_out_to(&a->body);
    struct buf record = {0};
    struct group *g = NULL;
    struct err e = {0};
    uint64_t taken = 0;

    json_out_obj(&o);
    json_out_member_arr(&o, "groups");
    for (; taken < n->max && q; taken++) {
        g = find_next(d, q, n);
        if (!g)
            break;
        record_taken(g->spec.id, n->lease_ms, clock_wall_ms(), &record);
        if (durable_write(a, g->spec.id, buf_str(&record), &e))
            break;
        g->taken_until_ms = clock_ms() + n->lease_ms;
        result_write_group(g, NULL, NULL, &o);
    }
    json_out_end_arr(&o);
    json_out_key(&o, "queue");
    result_write_queue(&d->book, n->queue, q, &now, &o);
    desk_put_unreachable(d, &o);
    json_out_end_obj(&o);
    buf_done(&record);
    if (taken == 0 && e.kind != ERR_NONE)
        durable_fail(a, &e);
    else
        durable_end(a, 200);
}

static bool check_next(struct poll *p)
{
    const struct next *n = p->ctx;
    struct queue *q = book_queue(&p->desk->book, n->queue);

    if (!q || !find_next(p->desk, q, n))
        return false;
    deliver_groups(p->desk, p->x, n);
    return true;
}

/* Answers when the wait is over, even without a group, so that the trainer gets the reason. */
static void next_over(struct poll *p)
{
    deliver_groups(p->desk, p->x, p->ctx);
}

static void next_drop(struct poll *p)
{
    free(p->ctx);
}

static int read_states(struct desk_request *r, unsigned *ret, struct err *e)
{
    struct str rest = desk_query(r, "states");

    *ret = 1u << GROUP_FINISHED | 1u << GROUP_PARTIAL | 1u << GROUP_FAILED | 1u << GROUP_CANCELLED;
    if (!rest.p)
        return 0;
    *ret = 0;
    while (rest.len > 0) {
        struct str word = str_cut(&rest, ',');
        unsigned s = GROUP_FINISHED;

        while (s < GROUP_STATES && !str_eq_c(word, group_state_names[s]))
            s++;
        if (s == GROUP_STATES)
            return err_field(e, "states",
                             "states must name some of finished, partial, failed, cancelled, "
                             "divided by commas, not %.*s",
                             (int)MIN_OF(word.len, 40), word.p);
        *ret |= 1u << s;
    }
    return 0;
}

static int read_next(struct desk_request *r, struct next *n, uint64_t *wait_ms, struct err *e)
{
    struct str max, order;

    *n = (struct next){.max = 1, .lease_ms = LEASE_DEFAULT_MS};
    *wait_ms = 0;
    max = desk_query(r, "max");
    order = desk_query(r, "order");
    if (max.p && (str_to_u64(max, NEXT_MAX, &n->max) || n->max == 0))
        return err_field(e, "max", "max must be an integer from 1 to %d, not %.*s", NEXT_MAX,
                         (int)MIN_OF(max.len, 40), max.p);
    if (order.p && !str_eq_c(order, "settled") && !str_eq_c(order, "submitted"))
        return err_field(e, "order", "order must be settled or submitted, not %.*s",
                         (int)MIN_OF(order.len, 40), order.p);
    n->submitted = str_eq_c(order, "submitted");
    if (desk_query_seconds(r, "wait_s", WAIT_MAX_S, wait_ms, e) ||
        desk_query_seconds(r, "lease_s", LEASE_MAX_S, &n->lease_ms, e))
        return -1;
    return read_states(r, &n->states, e);
}

/* Logs that a trainer waits for groups of a queue that has none. The same name is logged once a
 * minute. */
static void log_unknown_queue(struct desk *d, struct str name)
{
    struct buf why = {0};

    if (book_queue(&d->book, name) ||
        (str_eq_c(name, d->unknown_queue) && clock_ms() < d->unknown_queue_ms + UNKNOWN_AGAIN_MS))
        return;
    (void)snprintf(d->unknown_queue, sizeof(d->unknown_queue), "%.*s", (int)name.len, name.p);
    d->unknown_queue_ms = clock_ms();
    waits_no_queue(&d->book, name, &why);
    log_warn(NULL, "a trainer asks for the next group of a queue that has none",
             LOG_S("reason", buf_str(&why)));
    buf_done(&why);
}

void queues_next(struct desk_request *r)
{
    static const struct poll_kind kind = {check_next, next_over, next_drop};
    struct next given, *kept;
    uint64_t wait_ms;
    struct err e = {0};

    if (read_next(r, &given, &wait_ms, &e)) {
        desk_error(r->x, &e);
        return;
    }
    kept = mem_alloc(sizeof(*kept) + r->name.len);
    *kept = given;
    memcpy(kept + 1, r->name.p, r->name.len);
    kept->queue = str_of((const char *)(kept + 1), r->name.len);
    log_unknown_queue(r->desk, r->name);
    poll_start(r->desk, r->x, &kind, kept, wait_ms);
}

/* --- acknowledge, return --- */

static int read_group_ids(struct desk_request *r, const struct json **ret, struct err *e)
{
    static const char *const names[] = {"groups"};
    struct field_reader f = {.body = r->body, .e = e};

    *ret = json_get(r->body, "groups");
    if (fields_known(&f, "", names, 1))
        return -1;
    if (!json_is(*ret, JSON_ARRAY) || (*ret)->n > ACKNOWLEDGED_GROUPS_MAX)
        return err_field(e, "groups", "groups must be a list of at most %d ids",
                         ACKNOWLEDGED_GROUPS_MAX);
    for (uint32_t i = 0; i < (*ret)->n; i++)
        if (!json_is(json_at(*ret, i), JSON_STRING))
            return field_bad("groups", json_at(*ret, i), "a list of strings", e);
    return 0;
}

/* Writes {"acked": n}, with a warning if no group has that queue. */
static void write_count(struct desk_request *r, const char *key, uint64_t n, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_i64(&o, key, (int64_t)n);
    result_write_queue_warning(&r->desk->book, r->name, &o);
    desk_put_unreachable(r->desk, &o);
    json_out_end_obj(&o);
}

/* Writes a record of the kind for each named group of the queue for which `fits` is true. Unknown
 * ids are not an error, because a repeated request names groups that were removed. */
static void write_many(struct desk_request *r, enum record_kind kind, const char *key,
                       bool (*fits)(const struct group *g))
{
    const struct json *ids = NULL;
    struct buf record = {0};
    struct err e = {0};
    struct desk_answer *answer;
    uint64_t n = 0;

    if (read_group_ids(r, &ids, &e)) {
        desk_error(r->x, &e);
        return;
    }
    answer = durable_begin(r->desk, r->x);
    for (uint32_t i = 0; i < ids->n && e.kind == ERR_NONE; i++) {
        struct str id = json_string(json_at(ids, i));
        struct group *g = book_group(&r->desk->book, id);

        if (!g || !g->queue || !str_eq_c(r->name, g->queue->name) || !fits(g))
            continue;
        record_plain(kind, id, clock_wall_ms(), &record);
        n += durable_write(answer, id, buf_str(&record), &e) == 0;
    }
    buf_done(&record);
    write_count(r, key, n, &answer->body);
    if (e.kind != ERR_NONE)
        durable_fail(answer, &e);
    else
        durable_end(answer, 200);
    polls_wake(r->desk);
}

static bool is_taken(const struct group *g)
{
    return g->delivery == DELIVERY_TAKEN;
}

void queues_ack(struct desk_request *r)
{
    write_many(r, RECORD_ACKED, "acked", group_settled);
}

void queues_return(struct desk_request *r)
{
    write_many(r, RECORD_RETURNED, "returned", is_taken);
}

/* --- cancel --- */

enum { CANCEL_WAITING = 1, CANCEL_RUNNING = 2, CANCEL_SETTLED = 4 };

struct cancel {
    unsigned states;
    bool deliver, has_version;
    int64_t version_below;
    const struct json *labels;
};

static int read_cancel_states(const struct json *given, unsigned *ret, struct err *e)
{
    static const char *const names[] = {"waiting", "running", "settled"};

    *ret = CANCEL_WAITING | CANCEL_RUNNING;
    if (json_is_null(given))
        return 0;
    *ret = 0;
    for (uint32_t i = 0; json_is(given, JSON_ARRAY) && i < given->n; i++) {
        unsigned k = 0;

        while (k < ARRAY_LEN(names) && !str_eq_c(json_string(json_at(given, i)), names[k]))
            k++;
        if (k == ARRAY_LEN(names))
            return field_bad("states", json_at(given, i), "some of waiting, running, settled", e);
        *ret |= 1u << k;
    }
    if (!json_is(given, JSON_ARRAY))
        return field_bad("states", given, "a list of waiting, running, settled", e);
    return 0;
}

static int read_cancel(struct desk_request *r, struct cancel *c, struct err *e)
{
    static const char *const names[] = {"states", "version_below", "labels", "deliver"};
    struct field_reader f = {.body = r->body, .e = e};

    *c = (struct cancel){.labels = json_get(r->body, "labels")};
    c->has_version = !json_is_null(json_get(r->body, "version_below"));
    if (fields_known(&f, "", names, ARRAY_LEN(names)) || fields_object(&f, "labels") ||
        fields_labels(&f, c->labels) || fields_bool(&f, "deliver", &c->deliver) ||
        fields_integer(&f, "version_below", 0, INT64_MAX, &c->version_below))
        return -1;
    return read_cancel_states(json_get(r->body, "states"), &c->states, e);
}

static bool labels_match(const struct group *g, const struct json *labels)
{
    for (uint32_t i = 0; json_is(labels, JSON_OBJECT) && i < labels->n; i++) {
        struct str is = group_label(g, json_string(&labels->members[i].key));
        const struct json *wanted = &labels->members[i].value;

        if (!is.p || !json_text(wanted).p || !str_eq(is, json_text(wanted)))
            return false;
    }
    return true;
}

static bool cancel_fits(const struct group *g, const struct cancel *c)
{
    unsigned is = group_settled(g)            ? CANCEL_SETTLED
                  : g->state == GROUP_RUNNING ? CANCEL_RUNNING
                                              : CANCEL_WAITING;

    if (!(c->states & is) || g->delivery == DELIVERY_TAKEN || !book_cancels(g, c->deliver))
        return false;
    if (c->has_version && (!g->spec.has_version || g->spec.version >= c->version_below))
        return false;
    return labels_match(g, c->labels);
}

/* Cancels the groups of the queue that fit. Their ids are added to the answer. */
static int cancel_all(struct desk_request *r, struct queue *q, const struct cancel *c,
                      struct desk_answer *answer, struct err *e)
{
    struct json_out o = json_out_to(&answer->body);
    struct buf record = {0};
    struct group *g, *next;
    int rc = 0;

    json_out_obj(&o);
    json_out_member_arr(&o, "cancelled");
    LIST_EACH_SAFE(&q->groups, g, next, struct group, queue_entry) {
        struct str id = arena_str(&r->arena, g->spec.id);

        if (rc || !cancel_fits(g, c))
            continue;
        record_cancel(id, c->deliver, clock_wall_ms(), &record);
        rc = durable_write(answer, id, buf_str(&record), e);
        json_out_str(&o, id);
    }
    json_out_end_arr(&o);
    result_write_queue_warning(&r->desk->book, r->name, &o);
    desk_put_unreachable(r->desk, &o);
    json_out_end_obj(&o);
    buf_done(&record);
    return rc;
}

void queues_cancel(struct desk_request *r)
{
    struct queue *q = book_queue(&r->desk->book, r->name), none = {0};
    struct desk_answer *answer;
    struct cancel c;
    struct err e = {0};

    if (read_cancel(r, &c, &e)) {
        desk_error(r->x, &e);
        return;
    }
    answer = durable_begin(r->desk, r->x);
    if (cancel_all(r, q ? q : &none, &c, answer, &e))
        durable_fail(answer, &e);
    else
        durable_end(answer, 200);
    polls_wake(r->desk);
}
