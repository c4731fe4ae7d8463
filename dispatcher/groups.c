/* /groups: submit, show, list, wait, cancel. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/durable.h"
#include "dispatcher/group_export.h"
#include "dispatcher/group_session.h"
#include "dispatcher/result.h"
#include "dispatcher/waits.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000, WAIT_MAX_S = 3600, WARNING_MAX = 1024 };

/* --- submit --- */

/* Refuses "." and "..", which clients and proxies take out of a path. */
static int check_names(const struct group_spec *g, const char *where, struct err *e)
{
    const struct str names[] = {g->id, g->queue};
    static const char *const fields[] = {"id", "queue"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq_c(names[i], ".") || str_eq_c(names[i], ".."))
            return err_field(e, fields[i], "%s%s must not be \"%.*s\", which no path can contain",
                             where, fields[i], (int)names[i].len, names[i].p);
    return 0;
}

/* Compares two groups by their texts with the defaults filled in, without regard to the order of
 * members. */
static bool same_group(struct desk_request *r, const struct group *g, struct str text)
{
    const struct json *a = NULL, *b = NULL;
    struct err e;

    return str_eq(text, str_of(g->text, g->text_len)) ||
           (json_parse(&r->arena, text, &a, &e) == 0 &&
            json_parse(&r->arena, str_of(g->text, g->text_len), &b, &e) == 0 && json_equal(a, b));
}

struct candidate {
    struct str id, text;
    bool exists;
};

/* Checks the group's size, which is limited because its sessions contain it. */
static int check_group_size(const struct group_spec *g, const char *where, struct err *e)
{
    if (g->n + g->extra <= GROUP_MAX)
        return 0;
    return err_field(e, "extra", "%sn + extra must be at most %d, not %u", where, GROUP_MAX,
                     g->n + g->extra);
}

/* Checks the reward of failed attempts as their sessions would: exports have float32. */
static int check_fail_reward(const struct json *body, const struct json *defaults,
                             const char *where, struct err *e)
{
    struct field_reader f = {.body = body, .defaults = defaults, .where = where, .e = e};
    double reward;

    return fields_number(&f, "fail_reward", -(double)FLT_MAX, (double)FLT_MAX, &reward);
}

/* Checks one group. Its text is stored in the arena. All checks of a submission are here:
 * NOLINTNEXTLINE(readability-function-size) */
static int check_group(struct desk_request *r, const struct json *body, const struct json *defaults,
                       struct str id, const char *where, struct candidate *ret, struct err *e)
{
    const struct config *config = r->desk->heritage->config;
    struct group_spec spec;
    struct buf text = {0};
    struct group *g;

    if (group_parse(body, defaults, id, where, &spec, e))
        return -1;
    group_write_submission(body, defaults, spec.id, &text);
    ret->id = spec.id;
    ret->text = arena_str(&r->arena, buf_str(&text));
    buf_done(&text);
    g = book_group(&r->desk->book, spec.id);
    ret->exists = g != NULL;
    if (g && same_group(r, g, ret->text))
        return 0; /* a repeated group is accepted even if it would be refused today */
    /* These checks are not in group_parse, because a journal may have groups from before they
     * existed. */
    if (check_names(&spec, where, e) || check_group_size(&spec, where, e) ||
        check_fail_reward(body, defaults, where, e) ||
        group_export_check(body, defaults, where, e) ||
        group_session_check(body, defaults, config, where, e) ||
        group_session_check_sum(&spec, body, defaults, config, where, e))
        return -1;
    if (g)
        return err_set(e, ERR_GROUP_EXISTS, "a group %.*s that differs is there already",
                       (int)spec.id.len, spec.id.p);
    return 0;
}

/* Refuses an id that is twice in one request. */
static int check_twice(const struct candidate *all, size_t n, struct err *e)
{
    struct map seen = {0};
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        if (map_get(&seen, all[i].id))
            rc = err_field(e, "id", "groups[%zu].id %.*s stands twice in the request", i,
                           (int)all[i].id.len, all[i].id.p);
        else
            (void)map_set(&seen, all[i].id, (void *)(uintptr_t)&all[i]);
    }
    map_done(&seen);
    return rc;
}

static int check_capacity(struct desk *d, const struct candidate *all, size_t n, struct err *e)
{
    uint64_t max = (uint64_t)d->heritage->config->queue_max_groups, fresh = 0;

    for (size_t i = 0; i < n; i++)
        fresh += !all[i].exists;
    if (fresh == 0)
        return 0;
    if (d->draining)
        return err_set(e, ERR_DRAINING, "the gateway is shutting down");
    if (d->disk_low)
        return err_set(e, ERR_STORAGE_FULL, "the journal's disk is almost full");
    if (d->book.n_waiting + fresh > max)
        return err_set(e, ERR_QUEUE_FULL,
                       "%llu groups wait; with %llu more there were more than "
                       "--queue-max-groups allows (%llu)",
                       (unsigned long long)d->book.n_waiting, (unsigned long long)fresh,
                       (unsigned long long)max);
    return 0;
}

static void write_answer(struct desk *d, const struct candidate *all, size_t n, bool single,
                         struct buf *out)
{
    struct json_out to = json_out_to(out), *o = &to;

    json_out_obj(o);
    if (!single)
        json_out_member_arr(o, "groups");
    for (size_t i = 0; i < n; i++) {
        const struct group *g = all[i].exists ? book_group(&d->book, all[i].id) : NULL;

        if (!single)
            json_out_obj(o);
        json_out_member_str(o, "id", all[i].id);
        json_out_member_str(o, "state", g ? str_cstr(group_state_names[g->state]) : STR("waiting"));
        json_out_member_bool(o, "created", !g);
        if (!single)
            json_out_end_obj(o);
    }
    if (!single)
        json_out_end_arr(o);
    json_out_end_obj(o);
}

/* Warns of runners of these groups that no executor offers. Each is named once. */
static void warn_of_runners(struct desk_request *r, const struct candidate *all, size_t n)
{
    const struct book *b = &r->desk->book;
    uint64_t now_ms = clock_ms();
    struct buf text = {0};
    struct map seen = {0};

    for (size_t i = 0; i < n && text.len < WARNING_MAX; i++) {
        const struct group *g = book_group(b, all[i].id);

        if (!g || group_settled(g) || waits_is_offered(g->runner, now_ms) ||
            map_get(&seen, str_cstr(g->runner->name)))
            continue;
        buf_puts(&text, seen.n ? "; " : "");
        (void)map_set(&seen, str_cstr(g->runner->name), g->runner);
        waits_not_offered(b, g->runner, now_ms, &text);
    }
    desk_warn(r->x, str_sub(buf_str(&text), 0, WARNING_MAX));
    map_done(&seen);
    buf_done(&text);
}

/* Removes a new group. A cancelled group without a queue is still in the book, so it is
 * acknowledged as well. */
static int remove_new(struct desk *d, struct str id, struct err *e)
{
    struct buf record = {0};
    int rc;

    record_cancel(id, false, clock_wall_ms(), &record);
    rc = desk_write(d, id, buf_str(&record), NULL, e);
    if (rc >= 0 && book_group(&d->book, id)) {
        record_plain(RECORD_ACKED, id, clock_wall_ms(), &record);
        rc = desk_write(d, id, buf_str(&record), NULL, e);
    }
    buf_done(&record);
    return rc < 0 ? -1 : 0;
}

/* Removes the groups that were written before one failed, so that a request makes all groups or
 * none. */
static void withdraw_candidates(struct desk *d, const struct candidate *all, size_t n)
{
    struct err e;

    for (size_t i = 0; i < n; i++)
        if (!all[i].exists && remove_new(d, all[i].id, &e))
            log_error(NULL, "a group of a refused request stays", LOG_S("group", all[i].id),
                      LOG_T("error", e.text));
}

/* Writes the groups and answers which of them are new and which existed already. */
static void submit_candidates(struct desk_request *r, const struct candidate *all, size_t n,
                              bool single)
{
    struct desk_answer *answer = durable_begin(r->desk, r->x);
    struct buf record = {0};
    struct err e = {0};
    bool made = false;
    int rc = 0;

    write_answer(r->desk, all, n, single, &answer->body);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (all[i].exists)
            continue;
        desk_record_group(r->desk, all[i].id, all[i].text, &record);
        rc = durable_write(answer, all[i].id, buf_str(&record), &e);
        if (rc)
            withdraw_candidates(r->desk, all, i);
        made = true;
    }
    warn_of_runners(r, all, n);
    buf_done(&record);
    if (rc)
        durable_fail(answer, &e);
    else
        durable_end(answer, made ? 201 : 200);
    polls_wake(r->desk);
}

void groups_put(struct desk_request *r)
{
    struct candidate c = {0};
    struct err e = {0};

    if (check_group(r, r->body, NULL, r->name, "", &c, &e) || check_capacity(r->desk, &c, 1, &e))
        desk_error(r->x, &e);
    else
        submit_candidates(r, &c, 1, true);
}

static int read_batch(struct desk_request *r, struct candidate **ret, size_t *ret_n, struct err *e)
{
    static const char *const names[] = {"defaults", "groups"};
    const struct json *groups = json_get(r->body, "groups"), *body = r->body;
    const struct json *defaults = json_get(r->body, "defaults");
    struct field_reader f = {.body = r->body, .e = e};
    size_t n = 1;

    if (groups) {
        n = groups->n;
        if (fields_known(&f, "", names, ARRAY_LEN(names)) || fields_object(&f, "defaults") ||
            group_check_defaults(defaults, e))
            return -1;
        if (!json_is(groups, JSON_ARRAY) || n < 1 || n > GROUPS_BATCH_MAX)
            return err_field(e, "groups", "groups must be a list of 1 to %d groups",
                             GROUPS_BATCH_MAX);
    } else {
        defaults = NULL;
    }
    *ret = arena_calloc(&r->arena, n, sizeof(**ret));
    *ret_n = n;
    for (size_t i = 0; i < n; i++) {
        char where[32] = "";

        if (groups) {
            body = json_at(groups, i);
            (void)snprintf(where, sizeof(where), "groups[%zu].", i);
        }
        if (check_group(r, body, defaults, (struct str){0}, where, &(*ret)[i], e))
            return -1;
    }
    return check_twice(*ret, n, e);
}

void groups_post(struct desk_request *r)
{
    struct candidate *all = NULL;
    struct err e = {0};
    size_t n = 0;

    if (read_batch(r, &all, &n, &e) || check_capacity(r->desk, all, n, &e))
        desk_error(r->x, &e);
    else
        submit_candidates(r, all, n, false);
}

/* --- one group --- */

static struct group *find_group(struct desk_request *r, struct err *e)
{
    struct group *g = book_group(&r->desk->book, r->name);
    struct buf peers = {0};

    if (g)
        return g;
    if (book_has_lost(&r->desk->book)) {
        (void)err_set(e, ERR_GROUP_LOST,
                      "group %.*s is unknown or lost: a lost node alone may have had it; submit it "
                      "again",
                      (int)MIN_OF(r->name.len, (size_t)GROUP_ID_MAX), r->name.p);
        return NULL;
    }
    if (!r->desk->copy) /* a fleet has one dispatcher */
        heritage_list_peers(r->desk->heritage, false, &peers);
    (void)err_set(e, ERR_UNKNOWN_GROUP, "no group is called %.*s%s%.*s",
                  (int)MIN_OF(r->name.len, (size_t)GROUP_ID_MAX), r->name.p,
                  peers.len > 0 ? " on this node; it does not ask its peers " : "", (int)peers.len,
                  peers.p ? peers.p : "");
    buf_done(&peers);
    return NULL;
}

/* Reports whether an answer with the group is its delivery, which must be recorded. Only a fleet
 * can lose a member later. */
static bool is_delivered_now(const struct desk *d, const struct group *g)
{
    return d->copy && group_settled(g) && !g->queue && g->deliveries == 0;
}

/* Answers with a group that has settled, after the records of that. `delivers`: a trainer asks. */
static void answer_settled(struct desk *d, struct exchange *x, const struct group *g, bool delivers)
{
    struct desk_answer *answer = durable_begin(d, x);
    struct json_out o = json_out_to(&answer->body);
    struct buf record = {0};
    struct err e;
    int rc = 0;

    if (delivers && is_delivered_now(d, g)) {
        record_taken(g->spec.id, 0, clock_wall_ms(), &record);
        rc = durable_write(answer, g->spec.id, buf_str(&record), &e);
        buf_done(&record);
    }
    result_write_group(g, NULL, NULL, &o);
    if (rc)
        durable_fail(answer, &e);
    else
        durable_end(answer, 200);
}

/* --- list --- */

struct group_filter {
    struct str queue, label_name, label_value;
    bool has_value;
    unsigned states; /* bits of group_state; 0: any */
    uint64_t after;  /* seq of the last group of the previous page */
    uint64_t limit;
};

static int read_filter(struct desk_request *r, struct group_filter *f, struct err *e)
{
    struct str state, label, cursor, limit;
    size_t equals;

    *f = (struct group_filter){.queue = desk_query(r, "queue"), .limit = LIST_DEFAULT};
    state = desk_query(r, "state");
    label = desk_query(r, "label");
    cursor = desk_query(r, "cursor");
    limit = desk_query(r, "limit");
    for (unsigned i = 0; state.p && i < GROUP_STATES; i++)
        if (str_eq_c(state, group_state_names[i]))
            f->states = 1u << i;
    if (state.p && !f->states)
        return err_field(e, "state",
                         "state must be waiting, running, finished, partial, failed or cancelled, "
                         "not %.*s",
                         (int)MIN_OF(state.len, 40), state.p);
    if (cursor.p && str_to_u64(cursor, UINT64_MAX, &f->after))
        return err_field(e, "cursor", "cursor is not one of ours");
    if (limit.p && (str_to_u64(limit, LIST_MAX, &f->limit) || f->limit == 0))
        return err_field(e, "limit", "limit must be an integer from 1 to %d, not %.*s", LIST_MAX,
                         (int)MIN_OF(limit.len, 40u), limit.p);
    equals = str_find(label, STR("="), 0);
    f->label_name = label.p ? str_sub(label, 0, equals) : label;
    f->has_value = label.p && equals != SIZE_MAX;
    f->label_value = f->has_value ? str_sub(label, equals + 1, SIZE_MAX) : (struct str){0};
    return 0;
}

static bool label_matches(const struct group *g, struct str name, struct str value, bool has_value)
{
    struct str is = group_label(g, name);

    return is.p && (!has_value || str_eq(is, value));
}

static bool matches_filter(const struct group *g, const struct group_filter *f)
{
    if (g->seq <= f->after || (f->states && !(f->states & 1u << g->state)))
        return false;
    if (f->queue.p && (!g->queue || !str_eq_c(f->queue, g->queue->name)))
        return false;
    return !f->label_name.p || label_matches(g, f->label_name, f->label_value, f->has_value);
}

void groups_list(struct desk_request *r)
{
    struct waits_now now = desk_waits_now(r->desk);
    struct group_filter f;
    struct err e = {0};
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    const struct group *g, *last = NULL;
    uint64_t n = 0;

    if (read_filter(r, &f, &e)) {
        desk_error(r->x, &e);
        return;
    }
    json_out_obj(&o);
    json_out_member_arr(&o, "groups");
    LIST_EACH(&r->desk->book.all, g, struct group, all_entry) {
        if (!matches_filter(g, &f))
            continue;
        if (n++ == f.limit)
            break;
        result_write_row(g, &r->desk->book, &now, &o);
        last = g;
    }
    json_out_end_arr(&o);
    json_out_key(&o, "next_cursor");
    if (n > f.limit && last)
        json_out_str(&o, arena_printf(&r->arena, "%llu", (unsigned long long)last->seq));
    else
        json_out_null(&o);
    if (f.queue.p)
        result_write_queue_warning(&r->desk->book, f.queue, &o);
    desk_put_unreachable(r->desk, &o);
    json_out_end_obj(&o);
    desk_json(r->x, 200, &body);
    buf_done(&body);
}

/* --- show and wait --- */

/* A group that a request waits for. seq distinguishes it from a later group with the same id. */
struct group_wait {
    uint64_t seq;
    struct buf last; /* the group as it was when it was cancelled and removed */
    char id[GROUP_ID_MAX + 1];
};

/* Answers if the group has ended, and no session of it is sought. A removed group has ended, too.
 */
static bool check_wait(struct poll *p)
{
    struct group_wait *w = p->ctx;
    struct group *g = book_group(&p->desk->book, str_cstr(w->id));
    struct err e;

    if (w->last.len > 0) {
        struct desk_answer *answer = durable_begin(p->desk, p->x);

        buf_add_str(&answer->body, buf_str(&w->last));
        durable_end(answer, 200);
        return true;
    }
    if (g && g->seq == w->seq && !group_settled(g))
        return false;
    if (g && g->seq == w->seq) {
        if (is_delivered_now(p->desk, g) && losses_seek(p->desk, g))
            return false;
        answer_settled(p->desk, p->x, g, true);
    } else {
        (void)err_set(&e, ERR_UNKNOWN_GROUP, "no group is called %s any more", w->id);
        desk_error(p->x, &e);
    }
    return true;
}

static void wait_over(struct poll *p)
{
    desk_empty(p->x, 204);
}

static void wait_drop(struct poll *p)
{
    buf_done(&((struct group_wait *)p->ctx)->last);
    free(p->ctx);
}

static void show_over(struct poll *p)
{
    struct err e;

    (void)err_set(&e, ERR_NO_OWNER,
                  "no node has answered for a session of the group within --fleet-hold");
    desk_error(p->x, &e);
}

static const struct poll_kind waiting = {check_wait, wait_over, wait_drop};
static const struct poll_kind showing = {check_wait, show_over, wait_drop};

void groups_removed(struct desk *d, const struct group *g)
{
    struct poll *p;

    LIST_EACH(&d->polls, p, struct poll, entry) {
        struct group_wait *w = p->ctx;
        struct json_out o;

        if (p->kind != &waiting || w->seq != g->seq || g->state != GROUP_CANCELLED)
            continue;
        buf_clear(&w->last);
        o = json_out_to(&w->last);
        result_write_group(g, NULL, NULL, &o);
    }
}

static struct group_wait *wait_for(const struct group *g)
{
    struct group_wait *w = mem_zalloc(sizeof(*w));

    w->seq = g->seq;
    memcpy(w->id, g->spec.id.p, g->spec.id.len);
    return w;
}

/* Reports in *ret whether the answer is a delivery: what only looks at a group changes nothing. */
static int read_deliver(struct desk_request *r, bool *ret, struct err *e)
{
    struct str given = desk_query(r, "deliver");

    *ret = !str_eq_c(given, "false");
    if (!given.p || !*ret || str_eq_c(given, "true"))
        return 0;
    return err_field(e, "deliver", "deliver must be true or false, not %.*s",
                     (int)MIN_OF(given.len, 40), given.p);
}

void groups_get(struct desk_request *r)
{
    struct desk *d = r->desk;
    struct waits_now now = desk_waits_now(d);
    struct err e = {0};
    bool delivers;
    const struct group *g = read_deliver(r, &delivers, &e) ? NULL : find_group(r, &e);
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    if (!g) {
        desk_error(r->x, &e);
    } else if (group_settled(g) && !delivers) {
        answer_settled(d, r->x, g, false);
    } else if (group_settled(g)) {
        poll_start(d, r->x, &showing, wait_for(g), (uint64_t)d->heritage->config->fleet_hold_ms);
    } else {
        result_write_group(g, &d->book, &now, &o);
        desk_json(r->x, 200, &body);
    }
    buf_done(&body);
}

void groups_wait(struct desk_request *r)
{
    uint64_t wait_ms = 60000;
    struct err e = {0};
    const struct group *g = NULL;

    if (desk_query_seconds(r, "timeout_s", WAIT_MAX_S, &wait_ms, &e) || !(g = find_group(r, &e))) {
        desk_error(r->x, &e);
        return;
    }
    poll_start(r->desk, r->x, &waiting, wait_for(g), wait_ms);
}

/* --- cancel --- */

/* Names the group in the answer if it was changed: a settled group may be unchanged. */
void groups_cancel(struct desk_request *r)
{
    static const char *const names[] = {"deliver"};
    struct field_reader f = {.body = r->body, .e = &(struct err){0}};
    struct group *g = find_group(r, f.e);
    struct desk_answer *answer;
    struct buf record = {0};
    bool deliver = false;

    if (!g || fields_known(&f, "", names, 1) || fields_bool(&f, "deliver", &deliver)) {
        desk_error(r->x, f.e);
        return;
    }
    answer = durable_begin(r->desk, r->x);
    if (!book_cancels(g, deliver)) {
        buf_puts(&answer->body, "{\"cancelled\":[]}");
        durable_end(answer, 200);
        return;
    }
    buf_puts(&answer->body, "{\"cancelled\":[");
    json_write_string(&answer->body, r->name);
    buf_puts(&answer->body, "]}");
    record_cancel(g->spec.id, deliver, clock_wall_ms(), &record);
    if (durable_write(answer, r->name, buf_str(&record), f.e))
        durable_fail(answer, f.e);
    else
        durable_end(answer, 200);
    buf_done(&record);
    polls_wake(r->desk);
}
