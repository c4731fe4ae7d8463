/*
 * POST /attempts/claim: an executor offers slots and gets attempts. Each attempt gets a session of
 * its own, made by a worker before the claim is recorded, so that a claim always has one. The steps
 * of one attempt: reserve its rollout, make the session, record the claim, answer. If a step fails,
 * the rollout continues to wait, and a session without a claim is aborted. The leases of a claim
 * begin with its answer, because no executor knows the attempts before. Options that the gateway
 * would always refuse end the attempt and fail its rollout.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "common/proc/ids.h"
#include "common/serve/exchange.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/executor_name.h"
#include "dispatcher/group_session.h"
#include "dispatcher/workers.h"

enum {
    SLOTS_MAX = 1024,       /* largest number of attempts in one answer */
    CLAIM_BYTES = 16 << 20, /* approximate limit for the bytes of groups in one answer */
    REFUSED_MS = 1000
};

/* --- one claim --- */

struct claim_item {
    struct claim *claim;
    char *group;
    uint64_t seq; /* the group's seq: a later group may have the same id by now */
    uint32_t rollout;
    struct runner *runner; /* the group's runner, which is never removed */
    char attempt[ATTEMPT_ID_LEN + 1];
    struct http_fetch *call;
    struct buf session; /* the worker's answer, after the claim is recorded */
    bool chooses;       /* the session's options choose its node */
    bool unsure;        /* in a fleet: the store has not confirmed the claim */
};

struct claim {
    struct desk *desk;
    struct exchange *x; /* NULL: the executor has left */
    char executor[EXECUTOR_MAX + 1];
    size_t n, waiting; /* number of items; number of items that have not ended */
    struct claim_item *items;
};

static void on_claim_closed(void *ctx, bool delivered)
{
    (void)delivered;
    ((struct claim *)ctx)->x = NULL;
}

/* Returns the deadline of the run in seconds since 1970. */
static double run_deadline_s(const struct group *g, uint64_t now_ms)
{
    uint64_t at = now_ms + g->spec.run_timeout_ms;

    if (g->spec.deadline_ms)
        at = MIN_OF(at, g->submitted_at_ms + g->spec.deadline_ms);
    return (double)at / 1000;
}

static void write_item(struct desk *d, const struct claim_item *it, struct json_out *o)
{
    const struct attempt *a = book_attempt(&d->book, str_cstr(it->attempt));
    const struct group *g = a->rollout->group;
    struct arena arena = {0};
    const struct json *text = NULL;
    struct err e;
    double until;

    (void)json_parse(&arena, str_of(g->text, g->text_len), &text, &e);
    until = run_deadline_s(g, a->claimed_at_ms);
    json_out_obj(o);
    json_out_member_cstr(o, "attempt_id", it->attempt);
    json_out_member_str(o, "group", g->spec.id);
    json_out_member_i64(o, "rollout", it->rollout);
    json_out_member_i64(o, "attempt", a->number);
    json_out_member_cstr(o, "runner", g->runner->name);
    json_out_member_value(o, "input", json_get(text, "input"));
    json_out_member_value(o, "metadata", json_get(text, "metadata"));
    json_out_member_raw(o, "session", buf_str(&it->session));
    json_out_member_double(o, "run_timeout_s", until - (double)a->claimed_at_ms / 1000);
    json_out_member_double(o, "deadline", until);
    json_out_member_double(o, "lease_s", (double)desk_lease_ms(d) / 1000);
    json_out_end_obj(o);
    arena_done(&arena);
}

/* Sends the answer after all items have ended, and frees the claim. */
static void claim_answer(struct claim *c)
{
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    json_out_obj(&o);
    json_out_member_arr(&o, "attempts");
    for (size_t i = 0; i < c->n; i++) {
        struct attempt *a = book_attempt(&c->desk->book, str_cstr(c->items[i].attempt));

        if (!a || a->ended)
            continue;
        desk_begin_lease(c->desk, a);
        if (c->items[i].session.len == 0)
            continue;
        if (c->x && !c->items[i].unsure)
            write_item(c->desk, &c->items[i], &o);
        else if (c->x)
            ends_lost(c->desk, a, "the fleet's store has not confirmed the claim", clock_wall_ms());
        else
            ends_lost(c->desk, a, "the executor left before it was given the attempt",
                      clock_wall_ms());
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    if (c->x) {
        exchange_watch(c->x, NULL, NULL);
        desk_json(c->x, 200, &body);
    }
    buf_done(&body);
    for (size_t i = 0; i < c->n; i++) {
        buf_done(&c->items[i].session);
        free(c->items[i].group);
    }
    c->desk->busy--;
    free(c->items);
    free(c);
}

static void item_done(struct claim_item *it)
{
    struct claim *c = it->claim;

    if (--c->waiting == 0)
        claim_answer(c);
}

static void on_claim_durable(void *ctx)
{
    item_done(ctx);
}

static void on_claim_failed(void *ctx, const struct err *e)
{
    struct claim_item *it = ctx;

    (void)e; /* the copy has logged it */
    it->unsure = true;
    item_done(it);
}

/* Returns the item's rollout if it still waits for this claim; otherwise NULL. */
static struct rollout *item_rollout(const struct claim_item *it)
{
    struct group *g = book_group(&it->claim->desk->book, str_cstr(it->group));
    struct rollout *r;

    if (!g || g->seq != it->seq || !g->rollouts || it->rollout >= group_rollouts(g))
        return NULL;
    r = &g->rollouts[it->rollout];
    return r->state == ROLLOUT_WAITING && r->reserved ? r : NULL;
}

/* Records the claim. Returns like desk_write: 1 if it is durable, 0 if `on_claim_durable` will be
 * called. */
static int record_item(struct claim_item *it, struct rollout *r, struct str session)
{
    struct desk *d = it->claim->desk;
    struct record_claim claim = {.rollout = it->rollout,
                                 .attempt = str_cstr(it->attempt),
                                 .session = session,
                                 .executor = str_cstr(it->claim->executor)};
    struct buf record = {0};
    struct attempt *a;
    struct err e;
    int rc;

    record_claim(r->group->spec.id, &claim, clock_wall_ms(), &record);
    rc = desk_write(d, r->group->spec.id, buf_str(&record),
                    &(struct desk_done){on_claim_durable, it, on_claim_failed}, &e);
    buf_done(&record);
    if (rc < 0) {
        d->refused_until_ms = clock_ms() + REFUSED_MS;
        log_warn(NULL, "a claim cannot be recorded", LOG_T("error", e.text));
    }
    a = book_attempt(&d->book, str_cstr(it->attempt));
    if (!a) {
        r = item_rollout(it);
        if (r)
            book_release(r);
        return rc;
    }
    /* the lease begins later: other items of the claim may take longer */
    a->lease_due_ms = LEASE_NOT_BEGUN;
    desk_note_epoch(d, a);
    desk_count_claim(d, a);
    return rc;
}

/* Records the attempt after its session was made. If no rollout waits for the attempt any longer,
 * aborts the session. Returns 0 if on_claim_durable will be called. */
static int start_attempt(struct claim_item *it, struct rollout *r, struct str session,
                         struct str body)
{
    char id[SESSION_ID_MAX] = "";
    int rc = r ? record_item(it, r, session) : -1;

    if (rc >= 0) {
        buf_add_str(&it->session, body);
        return rc;
    }
    memcpy(id, session.p, session.len);
    closing_start(it->claim->desk, id, CLOSING_ABORT, NULL);
    return rc;
}

/* Records an attempt that ends before it has begun, so that the trainer gets the reason. Returns 0
 * if on_claim_durable will be called. */
static int record_refusal(struct claim_item *it, struct rollout *r, const char *why)
{
    struct desk *d = it->claim->desk;
    int rc = record_item(it, r, STR(""));
    struct attempt *a = book_attempt(&d->book, str_cstr(it->attempt));

    if (a)
        ends_refused(d, a, why);
    return rc;
}

/* Records why no session was made, for `blocked`: the message of the worker's error, or the failure
 * of the call. */
static void write_refusal(struct desk *d, int status, struct str why)
{
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e;

    if (json_parse(&a, why, &v, &e) == 0 && json_get(json_get(v, "error"), "message"))
        why = json_string(json_get(json_get(v, "error"), "message"));
    if (status)
        (void)snprintf(d->refused_why, sizeof(d->refused_why), "no session can be made: %d %.*s",
                       status, (int)MIN_OF(why.len, 200u), why.p ? why.p : "");
    else
        (void)snprintf(d->refused_why, sizeof(d->refused_why), "no session can be made: %.*s",
                       (int)MIN_OF(why.len, 200u), why.p ? why.p : "");
    arena_done(&a);
}

/* Handles that no session can be made now. The rollout waits for a moment. Unless a node of a fleet
 * may still make sessions, all claims wait, too, and of those that fail together only one logs it.
 */
static void put_off(struct desk *d, struct rollout *r, int status, struct str why)
{
    bool is_first = clock_ms() >= d->refused_until_ms;

    if (!workers_have_others(d->workers))
        d->refused_until_ms = clock_ms() + REFUSED_MS;
    d->refused_at_ms = clock_ms();
    write_refusal(d, status, why);
    if (r)
        book_release(r);
    if (status < 400)
        sweep_start(d); /* the session may exist although the answer was lost */
    if (is_first && status != 429 && status != 503)
        log_warn(NULL, "a session cannot be made for an attempt, trying again",
                 LOG_I("status", status), LOG_S("reason", str_sub(why, 0, 300)));
}

/* Returns the message of a worker's error, in the arena. */
static const char *error_text(struct arena *a, struct str body)
{
    const struct json *v = NULL;
    struct err e;

    if (json_parse(a, body, &v, &e))
        return "the gateway refuses the session";
    return arena_printf(a, "the gateway refuses the session: %.*s",
                        (int)json_string(json_get(json_get(v, "error"), "message")).len,
                        json_string(json_get(json_get(v, "error"), "message")).p)
        .p;
}

static void on_session(void *ctx, int status, struct str body, const struct err *e)
{
    struct claim_item *it = ctx;
    struct desk *d = it->claim->desk;
    struct rollout *r = item_rollout(it);
    struct arena a = {0};
    const struct json *v = NULL;
    struct err bad;
    struct str session = {0};
    int rc = 1;

    it->call = NULL;
    (void)map_take(&d->claiming, str_cstr(it->attempt));
    if (status == 200 && json_parse(&a, body, &v, &bad) == 0)
        session = json_string(json_get(v, "session_id"));
    if (session.p)
        d->refused_at_ms = 0;
    else if (r && it->chooses) /* no different node can make it */
        r->not_before_ms = clock_wall_ms() + REFUSED_MS;
    if (session.p && session.len < SESSION_ID_MAX)
        rc = start_attempt(it, r, session, body);
    else if (!worker_refuses(status))
        put_off(d, r, status, status ? body : str_cstr(e->text));
    else if (r)
        rc = record_refusal(it, r, error_text(&a, body));
    if (!session.p || !book_attempt(&d->book, str_cstr(it->attempt)))
        claims_probe_back(it->runner); /* the probe was not used */
    if (rc != 0)
        item_done(it);
    arena_done(&a);
}

/* --- the request --- */

struct offer {
    char executor[EXECUTOR_MAX + 1];
    size_t n; /* number of runners */

    struct {
        char *name;
        uint64_t slots;
    } * at;
};

static void add_claim_item(struct claim *c, struct rollout *r)
{
    struct claim_item *it;

    c->items = mem_realloc_array(c->items, c->n + 1, sizeof(*c->items));
    it = &c->items[c->n++];
    *it = (struct claim_item){.rollout = r->index,
                              .seq = r->group->seq,
                              .runner = r->group->runner,
                              .group = mem_strndup(r->group->spec.id.p, r->group->spec.id.len)};
    ids_hex(c->desk->ids, it->attempt, ATTEMPT_ID_LEN / 2);
    book_reserve(r);
}

static void choose_rollouts(struct claim *c, const struct offer *o)
{
    struct desk *d = c->desk;
    uint64_t wall_ms = clock_wall_ms();
    size_t bytes = 0;

    for (size_t i = 0; i < o->n && !claims_paused(d); i++) {
        struct runner *runner = book_runner_made(&d->book, str_cstr(o->at[i].name));
        uint64_t got = 0;
        struct rollout *r;

        while (got < o->at[i].slots && c->n < SLOTS_MAX && bytes < CLAIM_BYTES) {
            r = book_next_rollout(&d->book, runner, str_cstr(o->executor), wall_ms, claims_closed,
                                  d);
            if (!r || !claims_runner_lets(d, runner))
                break;
            add_claim_item(c, r);
            bytes += r->group->text_len;
            got++;
        }
    }
}

static bool check_claim(struct poll *p)
{
    struct desk *d = p->desk;
    const struct offer *o = p->ctx;
    struct claim *c = mem_zalloc(sizeof(*c));
    struct buf body = {0};

    c->desk = d;
    c->x = p->x;
    memcpy(c->executor, o->executor, sizeof(c->executor));
    choose_rollouts(c, o);
    if (c->n == 0) {
        free(c);
        return false;
    }
    exchange_watch(c->x, on_claim_closed, c);
    d->busy++;
    c->waiting = c->n;
    for (size_t i = 0, n = c->n; i < n; i++) {
        struct claim_item *it = &c->items[i];

        it->claim = c;
        (void)map_set(&d->claiming, str_cstr(it->attempt), it);
        buf_clear(&body);
        it->chooses = group_session_write(book_group(&d->book, str_cstr(it->group)), it->rollout,
                                          it->attempt, &body);
        it->call = worker_make_session(d->workers, buf_str(&body), it->chooses, on_session, it);
    }
    buf_done(&body);
    return true;
}

static void claim_over(struct poll *p)
{
    exchange_reply(p->x, 200, "application/json", STR("{\"attempts\":[]}"));
}

/* Adds the slots of a claim that begins to wait, or removes those of one that no longer waits. */
static void count_slots(struct desk *d, const struct offer *o, bool waits)
{
    for (size_t i = 0; i < o->n; i++) {
        struct runner *r = book_runner_made(&d->book, str_cstr(o->at[i].name));

        r->slots += waits ? o->at[i].slots : -o->at[i].slots;
        r->offered_ms = clock_ms();
        desk_events_runner(d, r);
        if (!waits && r->slots == 0)
            book_runner_withdraw(&d->book, r);
    }
}

static void offer_free(struct offer *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->at[i].name);
    free(o->at);
    free(o);
}

static void claim_drop(struct poll *p)
{
    count_slots(p->desk, p->ctx, false);
    offer_free(p->ctx);
}

static int read_offer(struct desk_request *r, struct offer *o, uint64_t *wait_ms, struct err *e)
{
    static const char *const names[] = {"executor", "slots", "wait_s"};
    struct field_reader f = {.body = r->body, .e = e};
    const struct json *slots = json_get(r->body, "slots");
    double wait_s = 30;

    if (fields_known(&f, "", names, ARRAY_LEN(names)) || executor_name_read(r, o->executor, e) ||
        fields_number(&f, "wait_s", 0, EXECUTOR_WAIT_MAX_S, &wait_s))
        return -1;
    *wait_ms = (uint64_t)(wait_s * 1000);
    if (!json_is(slots, JSON_OBJECT) || slots->n == 0 || slots->n > 256)
        return fields_bad(&f, "slots", slots, "an object of 1 to 256 runners and their slots");
    o->at = mem_calloc(slots->n, sizeof(*o->at));
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct json *v = &slots->members[i].value;
        struct str name = json_string(&slots->members[i].key);
        struct field_shown shown = {0};
        char path[80];
        int64_t n;

        (void)snprintf(path, sizeof(path), "slots.%s", field_show_name(name, &shown));
        if (name.len > 128)
            return fields_fault(&f, path, "has a name of more than 128 bytes");
        if (json_to_i64(v, &n) || n < 0 || n > 1000000)
            return fields_bad(&f, path, v, "an integer from 0 to 1000000");
        o->at[o->n].name = mem_strndup(name.p, name.len);
        o->at[o->n++].slots = (uint64_t)n;
    }
    return 0;
}

static const struct poll_kind claiming = {check_claim, claim_over, claim_drop};

void attempts_claim(struct desk_request *r)
{
    struct offer *o = mem_zalloc(sizeof(*o));
    struct err e = {0};
    uint64_t wait_ms = 0;

    if (read_offer(r, o, &wait_ms, &e)) {
        offer_free(o);
        desk_error(r->x, &e);
        return;
    }
    count_slots(r->desk, o, true);
    poll_start(r->desk, r->x, &claiming, o, wait_ms);
}
