/*
 * Two kinds of long polls run at the same time. Each runner with free slots has one claim (struct
 * offering), so that a full runner does not delay the others. One renewal names all attempts: it
 * renews their leases, and its answer says which of them must end.
 *
 * A pending renewal does not name new attempts. `stale` marks that; after a short time for
 * gathering, the renewal is sent again. Both kinds share one back-off while the gateway does not
 * answer.
 *
 * A renewal names at most RENEW_MAX attempts. With more attempts, a round has several renewals, one
 * after the other. All except the last are answered at once and are not repeated. Otherwise the
 * first attempts would be named again and again while the last ones wait.
 *
 * Three waits:
 *   CLAIM_WAIT_S   The gateway keeps a claim without work. Long: work ends it at once.
 *   RENEW_WAIT_MS  The gateway keeps a renewal if no attempt must end. Short: a lease counts from
 *                  the end of the wait.
 *   REPEAT_MS      The executor waits before it repeats a renewal whose answer named only
 *                  attempts that end already. The gateway answers those at once.
 *
 * The end: drain withdraws the claims, waits for the attempts, stops them when the grace is over,
 * and leaves the loop when neither attempts nor `busy` work are left.
 */
#include "runner/executor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/os/signals.h"
#include "runner/cgroup.h"
#include "runner/execution.h"

enum {
    CLAIM_WAIT_S = 30,
    CALL_MARGIN_MS = 15000,
    RETRY_FIRST_MS = 100,
    RETRY_MAX_MS = 5000,
    RENEW_MAX = 10000, /* largest number of ids in a renewal, the gateway's limit */
    /* wait of a renewal; leases count from its end, so a long one hides a lost executor */
    RENEW_WAIT_MS = 500,
    GATHER_MS = 100, /* time for which new attempts are gathered before a renewal names them */
    REPEAT_MS = 300  /* pause before a renewal is repeated */
};

/* One long poll for each lane. While it is pending, its runner makes no second claim. Slots that
 * become free meanwhile are offered by the next one. */
struct offering {
    struct executor_head *head;
    struct slot_row lane;
    struct http_fetch *post;
    struct loop_timer again;
};

/* The executor, with fields that only this file uses. */
struct executor_head {
    struct executor x;
    struct signals signals;
    VEC(struct offering *) claims; /* one for each lane */
    struct loop_timer renew_again, gather, grace, quit;
    struct http_fetch *renewal;
    uint64_t retry_ms; /* present back-off; 0: the last call succeeded */
    uint64_t away_since_ms;
    bool stale;     /* the pending renewal does not name all attempts */
    uint64_t round; /* number of the round of renewals */
    bool more;      /* further attempts follow in the next renewal of the round */
    int status;     /* exit status */
};

static void claim_more(struct offering *c);
static void renew_leases(struct executor_head *h);
static void check_end(struct executor_head *h);
static void reload_roster(struct executor_head *h);

static struct executor_head *head_of(struct executor *x)
{
    return CONTAINER_OF(x, struct executor_head, x);
}

/* --- drain --- */

static void stop_all(struct executor_head *h, enum execution_stop why)
{
    struct execution *a, *next;

    LIST_EACH_SAFE(&h->x.attempts, a, next, struct execution, entry)
        execution_stop(a, why);
}

static void on_grace(struct loop_timer *t)
{
    stop_all(CONTAINER_OF(t, struct executor_head, grace), EXECUTION_STOP_EXECUTOR);
}

static void withdraw_claim(struct offering *c)
{
    http_fetch_cancel(c->post);
    c->post = NULL;
    loop_timer_stop(c->head->x.loop, &c->again);
}

static void drain_attempts(struct executor_head *h, uint64_t grace_ms)
{
    if (h->x.draining)
        return;
    h->x.draining = true;
    for (size_t i = 0; i < h->claims.n; i++)
        withdraw_claim(h->claims.at[i]);
    workplaces_drain(&h->x.places);
    log_info(NULL, "the executor is stopping", LOG_U("grace_ms", grace_ms));
    loop_timer_set(h->x.loop, &h->grace, grace_ms, on_grace);
    check_end(h);
}

static void on_quit(struct loop_timer *t)
{
    loop_stop(CONTAINER_OF(t, struct executor_head, quit)->x.loop);
}

static void check_end(struct executor_head *h)
{
    if (h->x.draining && list_is_empty(&h->x.attempts) && h->x.busy == 0)
        loop_timer_set(h->x.loop, &h->quit, 1, on_quit);
}

/* Ends the executor with status 1, for a reason that retrying cannot mend. */
static void end_with_failure(struct executor_head *h, const char *what, const char *why)
{
    if (!h->x.draining)
        log_error(NULL, what, LOG_T("gateway", h->x.options->gateway), LOG_T("reason", why));
    h->status = 1;
    drain_attempts(h, 0);
}

static void on_executor_signal(struct signals *s, int signo, int sender)
{
    struct executor_head *h = CONTAINER_OF(s, struct executor_head, signals);

    (void)sender;
    if (signo == SIGCHLD)
        jobs_reap();
    else if (signo == SIGHUP)
        reload_roster(h);
    else if (h->x.draining)
        stop_all(h, EXECUTION_STOP_EXECUTOR); /* a second signal */
    else
        drain_attempts(h, (uint64_t)h->x.options->grace_ms);
}

/* --- answers of the gateway --- */

/* Reports whether the call succeeded. If not, the caller tries again after retry_ms. If the gateway
 * refuses, or has been away for too long, the executor ends. */
static bool is_answer(struct executor_head *h, const char *what, int status, struct str body,
                      const struct err *e)
{
    uint64_t away_ms;
    char text[600];

    if (status == 200) {
        h->retry_ms = 0;
        return true;
    }
    /* The time counts from the first failure, because the last answer to an idle executor may be
     * old. */
    if (h->retry_ms == 0)
        h->away_since_ms = clock_ms();
    away_ms = clock_ms() - h->away_since_ms;
    (void)snprintf(text, sizeof(text), "%s: %d %.*s", what, status,
                   (int)MIN_OF(body.len ? body.len : strlen(e->text), 500u),
                   body.len ? body.p : e->text);
    /* 408: the bytes of a request came too late, for example because this machine stood still. */
    if (status >= 400 && status < 500 && status != 408 && status != 429) {
        end_with_failure(h, "the gateway refuses this executor", text);
    } else if (away_ms > (uint64_t)h->x.options->reconnect_ms) {
        end_with_failure(h, "the gateway is away for too long", text);
        /* their ends cannot be reported to a gateway that refuses */
        stop_all(h, EXECUTION_STOP_DROPPED);
    } else if (h->retry_ms == 0) {
        log_warn(NULL, "the gateway does not answer, trying again", LOG_T("reason", text));
    }
    h->retry_ms = MIN_OF(MAX_OF(h->retry_ms * 2, (uint64_t)RETRY_FIRST_MS), (uint64_t)RETRY_MAX_MS);
    return false;
}

/* --- claims --- */

static void on_claim_again(struct loop_timer *t)
{
    claim_more(CONTAINER_OF(t, struct offering, again));
}

static void on_gather(struct loop_timer *t)
{
    renew_leases(CONTAINER_OF(t, struct executor_head, gather));
}

static void start_attempts(struct executor_head *h, const struct json *list)
{
    for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++) {
        execution_begin(&h->x, json_at(list, i));
        h->stale = true;
    }
    if (h->stale && !loop_timer_active(&h->gather))
        loop_timer_set(h->x.loop, &h->gather, GATHER_MS, on_gather);
}

static void on_claimed(void *ctx, int status, struct str body, const struct err *e)
{
    struct offering *c = ctx;
    struct executor_head *h = c->head;
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err bad;

    c->post = NULL;
    if (!is_answer(h, "claim", status, body, e)) {
        if (!h->x.draining)
            loop_timer_set(h->x.loop, &c->again, h->retry_ms, on_claim_again);
        return;
    }
    if (json_parse(&arena, body, &v, &bad))
        end_with_failure(h, "the gateway's answer cannot be read", bad.text);
    else
        start_attempts(h, json_get(v, "attempts"));
    arena_done(&arena);
    claim_more(c);
}

/* Offers the lane's free slots, if there are any. */
static void claim_more(struct offering *c)
{
    struct executor_head *h = c->head;
    int64_t slots = c->lane.roster ? c->lane.roster->slots - c->lane.running : 0;
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    if (h->x.draining || c->post || loop_timer_active(&c->again) || slots <= 0)
        return;
    json_out_obj(&o);
    json_out_member_cstr(&o, "executor", h->x.options->name);
    json_out_member_i64(&o, "wait_s", CLAIM_WAIT_S);
    json_out_member_obj(&o, "slots");
    json_out_member_i64(&o, c->lane.name, slots);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    c->post = post_start(h->x.gateway, "/attempts/claim", h->x.options->key, &body,
                         CLAIM_WAIT_S * 1000 + CALL_MARGIN_MS, on_claimed, c);
}

void executor_slot_free(struct executor *x)
{
    struct executor_head *h = head_of(x);

    for (size_t i = 0; i < h->claims.n; i++)
        claim_more(h->claims.at[i]);
    check_end(h);
}

/* --- renewals --- */

static void on_renew_again(struct loop_timer *t)
{
    renew_leases(CONTAINER_OF(t, struct executor_head, renew_again));
}

/* Ends the attempts that the gateway names. Returns whether any of them was not ending yet. */
static bool apply_kills(struct executor_head *h, const struct json *kills)
{
    bool news = !json_is(kills, JSON_ARRAY) || kills->n == 0;

    for (uint32_t i = 0; json_is(kills, JSON_ARRAY) && i < kills->n; i++) {
        const struct json *one = json_at(kills, i);
        struct execution *a = map_get(&h->x.by_id, json_string(json_get(one, "attempt_id")));
        bool deadline = str_eq_c(json_string(json_get(one, "reason")), "deadline");

        if (!a)
            continue;
        news = news || !a->stopped;
        if (a->phase == EXECUTION_END)
            continue; /* the answer to its end will contain the same */
        log_debug(NULL, "an attempt is to end", LOG_T("attempt", a->id),
                  LOG_S("reason", json_string(json_get(one, "reason"))));
        execution_stop(a, deadline ? EXECUTION_STOP_DEADLINE : EXECUTION_STOP_DROPPED);
    }
    return news;
}

static void on_renewed(void *ctx, int status, struct str body, const struct err *e)
{
    struct executor_head *h = ctx;
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err bad;
    uint64_t wait_ms = 1;

    h->renewal = NULL;
    if (!is_answer(h, "renew", status, body, e)) {
        wait_ms = MIN_OF(h->retry_ms, (uint64_t)RENEW_WAIT_MS);
        h->more = false; /* begins with the first attempt again */
    } else if (json_parse(&arena, body, &v, &bad)) {
        end_with_failure(h, "the gateway's answer cannot be read", bad.text);
    } else if (!apply_kills(h, json_get(v, "kill"))) {
        wait_ms = REPEAT_MS;
    }
    arena_done(&arena);
    loop_timer_set(h->x.loop, &h->renew_again, wait_ms, on_renew_again);
}

/* Returns the next attempt of this round, from `a` on; or NULL. */
static struct execution *next_unnamed(const struct executor_head *h, struct execution *a)
{
    while (a && (!execution_is_leased(a) || a->renewal_round == h->round))
        a = LIST_NEXT_OF(&h->x.attempts, a, struct execution, entry);
    return a;
}

/* Names the next attempts of the round and sets whether some are left. Returns whether it named
 * any. */
static bool name_attempts(struct executor_head *h, struct json_out *o)
{
    struct execution *a = LIST_FIRST_OF(&h->x.attempts, struct execution, entry);
    size_t n = 0;

    for (a = next_unnamed(h, a); a && n < RENEW_MAX; a = next_unnamed(h, a)) {
        a->renewal_round = h->round;
        json_out_cstr(o, a->id);
        n++;
    }
    h->more = a != NULL;
    return n > 0;
}

/* Sends a long poll over the attempts, or over the last ones of the round. The gateway answers when
 * an attempt must end. */
static void renew_leases(struct executor_head *h)
{
    struct execution *first = LIST_FIRST_OF(&h->x.attempts, struct execution, entry);
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    bool any;

    if (h->renewal && (!h->stale || h->more))
        return;
    http_fetch_cancel(h->renewal);
    h->renewal = NULL;
    h->stale = false;
    if (!h->more || !next_unnamed(h, first))
        h->round++;
    json_out_obj(&o);
    json_out_member_cstr(&o, "executor", h->x.options->name);
    json_out_member_arr(&o, "attempts");
    any = name_attempts(h, &o);
    json_out_end_arr(&o);
    json_out_member_double(&o, "wait_s", h->more ? 0 : (double)RENEW_WAIT_MS / 1000);
    json_out_end_obj(&o);
    if (any)
        h->renewal = post_start(h->x.gateway, "/attempts/renew", h->x.options->key, &body,
                                RENEW_WAIT_MS + CALL_MARGIN_MS, on_renewed, h);
    buf_done(&body);
}

/* --- start and end --- */

static struct offering *find_offering(struct executor_head *h, struct str runner)
{
    for (size_t i = 0; i < h->claims.n; i++)
        if (str_eq_c(runner, h->claims.at[i]->lane.name))
            return h->claims.at[i];
    return NULL;
}

struct slot_row *executor_lane(struct executor *x, struct str runner)
{
    struct offering *c = find_offering(head_of(x), runner);

    return c && c->lane.roster ? &c->lane : NULL;
}

static struct offering *offering_new(struct executor_head *h, const char *runner)
{
    struct offering *c = mem_zalloc(sizeof(*c));

    c->head = h;
    c->lane.name = mem_strdup(runner);
    *vec_push(&h->claims) = c;
    return c;
}

/* Offers the runners of the edition, and no others, from now on. Withdraws pending claims, which
 * may offer too many slots. */
static void offer_edition(struct executor_head *h, struct edition *d)
{
    for (size_t i = 0; i < h->claims.n; i++) {
        withdraw_claim(h->claims.at[i]);
        h->claims.at[i]->lane.roster = NULL;
    }
    for (size_t i = 0; i < d->roster.n; i++) {
        const struct roster_runner *p = &d->roster.at[i];
        struct offering *c = find_offering(h, str_cstr(p->name));

        if (!c)
            c = offering_new(h, p->name);
        c->lane.roster = p;
        c->lane.way = &d->ways[i];
    }
    edition_drop(h->x.edition);
    h->x.edition = d;
}

static void log_mistakes(const struct buf *mistakes)
{
    struct str rest = buf_str(mistakes);

    while (rest.len > 0)
        log_error(NULL, "the runner file is not read again",
                  LOG_S("mistake", str_cut(&rest, '\n')));
}

/* Reads the runner file again (SIGHUP). Running attempts keep their edition. */
static void reload_roster(struct executor_head *h)
{
    struct buf mistakes = {0};
    struct roster fresh = {0};
    struct edition *d = NULL;
    struct err e;

    if (h->x.draining)
        return;
    if (roster_load(h->x.options->runners, &fresh, &mistakes) == 0) {
        d = edition_new(h->x.loop, &fresh, h->x.options->ca_file, &e);
        if (!d)
            buf_printf(&mistakes, "%s\n", e.text);
    }
    log_mistakes(&mistakes);
    buf_done(&mistakes);
    if (!d)
        return;
    offer_edition(h, d);
    log_info(NULL, "the runner file was read again", LOG_U("runners", d->roster.n));
    executor_slot_free(&h->x);
}

static int make_work_folder(const char *path, struct err *e)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return err_sys(e, ERR_IO, "cannot make the folder %s", path);
    return 0;
}

static int open_all(struct executor_head *h, struct roster *roster, struct err *e)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, 0};
    const struct executor_options *o = h->x.options;
    struct http_client_options http = {.ca_file = o->ca_file, .max_idle = 64};
    struct edition *d;

    if (make_work_folder(o->logs, e))
        return -1;
    h->x.loop = loop_new(e);
    if (!h->x.loop || workplaces_open(&h->x.places, &h->x, e) ||
        signals_init(&h->signals, h->x.loop, signals, on_executor_signal, e) ||
        http_client_new(h->x.loop, o->gateway, &http, &h->x.gateway, e))
        return -1;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    cgroup_open();
    d = edition_new(h->x.loop, roster, o->ca_file, e);
    if (!d)
        return -1;
    offer_edition(h, d);
    return 0;
}

static void free_executor(struct executor_head *h)
{
    for (size_t i = 0; i < h->claims.n; i++) {
        withdraw_claim(h->claims.at[i]);
        free(h->claims.at[i]->lane.name);
        free(h->claims.at[i]);
    }
    vec_done(&h->claims);
    map_done(&h->x.by_id);
    http_fetch_cancel(h->renewal);
    edition_close(h->x.edition);
    if (h->x.gateway)
        http_client_free(h->x.gateway);
    workplaces_close(&h->x.places);
    signals_done(&h->signals);
    loop_free(h->x.loop);
    cgroup_close();
    free(h);
}

int executor_run(struct roster *roster, const struct executor_options *o, struct err *e)
{
    struct executor_head *h = mem_zalloc(sizeof(*h));
    int rc = -1;

    h->x.options = o;
    if (open_all(h, roster, e) == 0) {
        log_info(NULL, "executor runs", LOG_T("executor", o->name), LOG_T("gateway", o->gateway),
                 LOG_U("runners", h->x.edition->roster.n));
        executor_slot_free(&h->x);
        loop_run(h->x.loop);
        rc = h->status;
    }
    free_executor(h);
    return rc;
}
