/*
 * Follows one attempt through the phases in the header. A run is a process (job.h) or one HTTP call
 * of a service. Both end in run_over, which decides whether the scorer runs.
 *
 *   claim -> run_begin -> ... -> run_over -> score_begin -> on_score_ended -> end_begin
 *                                    '---------- no scorer ----------------^
 *
 * Only set_outcome() sets `outcome` and `reason`. A timeout remains a timeout, whatever the status
 * of the process that it killed. If the executor ends, every outcome becomes `infra`. The end is
 * sent until the gateway answers; only then the execution is freed. The end of a dropped execution
 * (cancelled, or its lease is lost) is not sent.
 */
#include "runner/execution.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"

enum {
    EXIT_INFRA = 75, /* sysexits' EX_TEMPFAIL */
    LINE_MAX_BYTES = 1 << 20,
    CALL_TIMEOUT_MS = 150000, /* timeout of a call, longer than the gateway may take for an end */
    REASON_MAX = 600,         /* bytes of the reason why an end was refused */
    RETRY_FIRST_MS = 200,
    RETRY_MAX_MS = 5000
};

static const char *const outcome_names[] = {"ok", "timeout", "error", "infra"};

static void run_begin(struct execution *a);
static void end_begin(struct execution *a);

/* --- states and logs --- */

static void set_outcome(struct execution *a, enum execution_outcome outcome, const char *reason)
{
    a->outcome = outcome;
    free(a->reason);
    a->reason = reason && *reason ? mem_strdup(reason) : NULL;
}

static void execution_free(struct execution *a)
{
    struct executor *x = a->x;

    loop_timer_stop(x->loop, &a->timer);
    http_fetch_cancel(a->service);
    http_fetch_cancel(a->end_call);
    workplace_leave(&x->places, &a->place, a->outcome == EXECUTION_OK && !a->dropped);
    attempt_log_done(&a->log);
    buf_done(&a->line);
    buf_done(&a->reward);
    free(a->reason);
    a->lane->running--;
    edition_drop(a->edition);
    list_remove(&a->entry);
    if (map_get(&x->by_id, str_cstr(a->id)) == a)
        (void)map_take(&x->by_id, str_cstr(a->id));
    arena_done(&a->arena);
    free(a);
    executor_slot_free(x);
}

static double seconds_between(uint64_t from_ms, uint64_t to_ms)
{
    return from_ms && to_ms > from_ms ? (double)(to_ms - from_ms) / 1000 : 0;
}

/* Logs one line for the attempt. */
static void log_end(const struct execution *a, const char *verdict)
{
    log_info(
        NULL, "attempt ended", LOG_S("group", a->group), LOG_I("rollout", a->rollout),
        LOG_I("attempt", a->number), LOG_T("runner", a->roster->name), LOG_T("session", a->session),
        LOG_T("outcome", a->dropped ? "cancelled" : outcome_names[a->outcome]),
        LOG_T("verdict", verdict), LOG_U("run_ms", a->run_ms ? a->ended_ms - a->run_ms : 0),
        LOG_T("log", a->log.path ? a->log.path : ""), LOG_T("reason", a->reason ? a->reason : ""));
}

/* --- how a process ended --- */

static void describe_end(const struct job_end *end, const char *what, char out[160])
{
    if (end->lost)
        (void)snprintf(out, 160, "%s: its keeper was killed or stopped", what);
    else if (end->not_started)
        (void)snprintf(out, 160, "%s cannot be started: %s", what, strerror(end->not_started));
    else if (WIFSIGNALED(end->status))
        (void)snprintf(out, 160, "%s: killed by signal %d (%s)", what, WTERMSIG(end->status),
                       strsignal(WTERMSIG(end->status)));
    else
        (void)snprintf(out, 160, "%s: exit status %d", what, WEXITSTATUS(end->status));
}

/* A keeper that is lost without end->lost was killed by a process of the same user, which is the
 * run. */
static bool is_infra(const struct job_end *end)
{
    return end->not_started || (WIFEXITED(end->status) && WEXITSTATUS(end->status) == EXIT_INFRA);
}

static bool is_ok(const struct job_end *end)
{
    return !end->lost && !end->not_started && WIFEXITED(end->status) &&
           WEXITSTATUS(end->status) == 0;
}

/* --- reward --- */

/* Reads a number or an object as the reward_info. Returns -1 if the text is neither. */
static int read_reward(struct execution *a, struct str text)
{
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err e;
    int rc = -1;

    buf_clear(&a->reward);
    if (json_parse(&arena, str_trim(text), &v, &e) == 0 &&
        (json_is(v, JSON_OBJECT) || json_is(v, JSON_NUMBER))) {
        struct json_out o = json_out_to(&a->reward);

        rc = 0;
        if (json_is(v, JSON_OBJECT)) {
            json_out_value(&o, v);
        } else {
            json_out_obj(&o);
            json_out_member_value(&o, "reward", v);
            json_out_end_obj(&o);
        }
    }
    arena_done(&arena);
    return rc;
}

static struct str last_line(struct str text)
{
    size_t from;

    text = str_trim(text);
    from = text.len;
    while (from > 0 && text.p[from - 1] != '\n')
        from--;
    return str_sub(text, from, text.len);
}

/* --- the scorer --- */

static void on_score_output(void *ctx, bool is_error, struct str bytes)
{
    struct execution *a = ctx;

    attempt_log_add(&a->log, bytes);
    if (is_error)
        return;
    buf_add_str(&a->line, bytes);
    if (a->line.len > (size_t)2 * LINE_MAX_BYTES)
        buf_consume(&a->line, a->line.len - LINE_MAX_BYTES);
}

static void on_score_ended(void *ctx, const struct job_end *end)
{
    struct execution *a = ctx;
    char how[160];

    a->job = NULL;
    loop_timer_stop(a->x->loop, &a->timer);
    describe_end(end, "the scorer", how);
    if (a->executor_ends)
        set_outcome(a, EXECUTION_INFRA, "the executor is stopping");
    else if (end->lost || is_infra(end))
        set_outcome(a, EXECUTION_INFRA, how);
    else if (is_ok(end) && read_reward(a, last_line(buf_str(&a->line))) == 0)
        how[0] = '\0';
    else if (a->outcome == EXECUTION_OK)
        set_outcome(a, EXECUTION_ERROR,
                    is_ok(end) ? "the scorer's last line is neither a number nor an object" : how);
    end_begin(a);
}

static void on_score_timeout(struct loop_timer *t)
{
    job_stop(CONTAINER_OF(t, struct execution, timer)->job);
}

static void score_begin(struct execution *a)
{
    static const struct job_events events = {on_score_output, on_score_ended};
    const struct roster_runner *p = a->roster;
    struct job_spec spec = {
        .folder = a->place.folder, .grace_ms = (uint64_t)p->grace_ms, .apart = true};
    char **argv;
    struct err e;

    a->phase = EXECUTION_SCORE;
    a->score_ms = clock_ms();
    attempt_log_add(&a->log, STR("--- score\n"));
    if (roster_arguments(&a->arena, p->score, json_get(a->claim, "input"), &argv, &e)) {
        set_outcome(a, EXECUTION_ERROR, e.text);
        end_begin(a);
        return;
    }
    spec.argv = argv;
    spec.envp = surroundings_variables(a, true);
    if (job_start(a->x->loop, &spec, &events, a, &a->job, &e)) {
        set_outcome(a, EXECUTION_INFRA, e.text);
        end_begin(a);
        return;
    }
    loop_timer_set(a->x->loop, &a->timer, (uint64_t)p->score_timeout_ms, on_score_timeout);
}

/* --- the run --- */

static void run_over(struct execution *a)
{
    loop_timer_stop(a->x->loop, &a->timer);
    a->ended_ms = clock_ms();
    if (a->executor_ends)
        set_outcome(a, EXECUTION_INFRA, "the executor is stopping");
    if (!a->dropped && !a->executor_ends && a->outcome != EXECUTION_INFRA && a->roster->score)
        score_begin(a);
    else
        end_begin(a);
}

static void on_run_output(void *ctx, bool is_error, struct str bytes)
{
    (void)is_error;
    attempt_log_add(&((struct execution *)ctx)->log, bytes);
}

static void on_run_ended(void *ctx, const struct job_end *end)
{
    struct execution *a = ctx;
    char how[160];

    a->job = NULL;
    describe_end(end, "the run", how);
    if (!end->lost && !end->not_started && WIFEXITED(end->status))
        a->exit_status = WEXITSTATUS(end->status);
    if (!end->lost && !end->not_started && WIFSIGNALED(end->status))
        a->signo = WTERMSIG(end->status);
    if (a->outcome != EXECUTION_TIMEOUT)
        set_outcome(a,
                    is_ok(end)      ? EXECUTION_OK
                    : is_infra(end) ? EXECUTION_INFRA
                                    : EXECUTION_ERROR,
                    is_ok(end) ? NULL : how);
    run_over(a);
}

/* Drops the call to a service that has not answered within the grace. */
static void on_grace_over(struct loop_timer *t)
{
    struct execution *a = CONTAINER_OF(t, struct execution, timer);

    http_fetch_cancel(a->service);
    a->service = NULL;
    run_over(a);
}

/* A pending cancellation at a service. It may outlive its attempt. */
struct cancellation {
    struct executor *x;
    struct edition *edition;
};

static void on_cancelled(void *ctx, int status, struct str body, const struct err *e)
{
    struct cancellation *c = ctx;
    struct executor *x = c->x;

    (void)body;
    edition_drop(c->edition);
    free(c);
    x->busy--;
    executor_slot_free(x);
    if (status == 0 || status >= 300)
        log_warn(NULL, "a service did not take a cancellation", LOG_I("status", status),
                 LOG_T("error", e->text));
}

/* Asks the service to stop the run. The attempt waits a limited time for its answer. */
static void service_stop(struct execution *a)
{
    struct cancellation *c;
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    loop_timer_set(a->x->loop, &a->timer, (uint64_t)a->roster->grace_ms + 1, on_grace_over);
    if (!a->way->canceller)
        return;
    json_out_obj(&o);
    json_out_member_cstr(&o, "attempt_id", a->id);
    json_out_member_cstr(&o, "session_id", a->session);
    json_out_end_obj(&o);
    a->x->busy++;
    c = mem_zalloc(sizeof(*c));
    *c = (struct cancellation){a->x, edition_keep(a->edition)};
    (void)post_start(a->way->canceller, a->way->cancel_path, NULL, &body,
                     (uint64_t)a->roster->grace_ms + 1000, on_cancelled, c);
}

static void run_stop(struct execution *a)
{
    if (a->stopped)
        return;
    a->stopped = true;
    if (a->job)
        job_stop(a->job);
    else if (a->service)
        service_stop(a);
}

static void on_run_timeout(struct loop_timer *t)
{
    struct execution *a = CONTAINER_OF(t, struct execution, timer);

    set_outcome(a, EXECUTION_TIMEOUT, "the run took too long");
    run_stop(a);
}

static void on_service(void *ctx, int status, struct str body, const struct err *e)
{
    struct execution *a = ctx;
    char how[256];

    a->service = NULL;
    attempt_log_add(&a->log, body);
    (void)snprintf(how, sizeof(how), "the service answered %d", status);
    if (a->outcome == EXECUTION_TIMEOUT)
        (void)read_reward(a, body);
    else if (status == 0)
        set_outcome(a, EXECUTION_INFRA, e->text);
    else if (status >= 500 || status == 429)
        set_outcome(a, EXECUTION_INFRA, how);
    else if (status >= 300)
        set_outcome(a, EXECUTION_ERROR, how);
    else if (str_trim(body).len > 0 && read_reward(a, body))
        set_outcome(a, EXECUTION_ERROR, "the service's answer is neither a number nor an object");
    run_over(a);
}

static void service_begin(struct execution *a)
{
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    const char *url =
        arena_printf(&a->arena, "%s/sessions/%s", a->x->options->gateway, a->session).p;

    json_out_obj(&o);
    json_out_member_cstr(&o, "attempt_id", a->id);
    json_out_member_str(&o, "group", a->group);
    json_out_member_i64(&o, "rollout", a->rollout);
    json_out_member_i64(&o, "attempt", a->number);
    json_out_member_value(&o, "input", json_get(a->claim, "input"));
    json_out_member_value(&o, "metadata", json_get(a->claim, "metadata"));
    json_out_member_double(&o, "deadline", a->deadline_s);
    json_out_member_cstr(&o, "session_id", a->session);
    json_out_member_cstr(&o, "base_url", arena_printf(&a->arena, "%s/v1", url).p);
    json_out_member_cstr(&o, "anthropic_base_url", url);
    json_out_member_cstr(&o, "api_key", a->agent_key);
    json_out_end_obj(&o);
    a->service = post_start(a->way->client, a->way->path, NULL, &body, 0, on_service, a);
}

static int process_begin(struct execution *a, struct err *e)
{
    static const struct job_events events = {on_run_output, on_run_ended};
    const struct roster_runner *p = a->roster;
    struct job_spec spec = {.grace_ms = (uint64_t)p->grace_ms};
    char **argv;

    if (roster_arguments(&a->arena, p->run, json_get(a->claim, "input"), &argv, e) ||
        surroundings_make(a, e))
        return -1;
    spec.argv = argv;
    spec.envp = surroundings_variables(a, false);
    spec.folder = a->place.folder;
    return job_start(a->x->loop, &spec, &events, a, &a->job, e);
}

static void run_begin(struct execution *a)
{
    const struct roster_runner *p = a->roster;
    double limit_s = (double)p->timeout_ms / 1000, given_s = limit_s;
    uint64_t now = clock_ms();
    struct err e;

    a->phase = EXECUTION_RUN;
    a->run_ms = now;
    attempt_log_open(&a->log, a->x->options->logs, a->group, a->rollout, a->number);
    (void)json_to_double(json_get(a->claim, "run_timeout_s"), &given_s);
    given_s -= seconds_between(a->claimed_ms, now);
    limit_s = MAX_OF(MIN_OF(limit_s, given_s), 0.001);
    a->deadline_s = (double)clock_wall_ms() / 1000 + limit_s;
    if (p->http) {
        service_begin(a);
    } else if (process_begin(a, &e)) {
        set_outcome(a, e.kind == ERR_INVALID ? EXECUTION_ERROR : EXECUTION_INFRA, e.text);
        a->ended_ms = clock_ms();
        end_begin(a);
        return;
    }
    loop_timer_set(a->x->loop, &a->timer, (uint64_t)(limit_s * 1000), on_run_timeout);
}

/* --- reporting the end to the gateway --- */

static void write_end(struct execution *a, struct buf *out)
{
    struct json_out o = json_out_to(out);
    struct buf tail = {0};
    uint64_t now = clock_ms();

    attempt_log_tail(&a->log, &tail);
    json_out_obj(&o);
    json_out_member_cstr(&o, "outcome", outcome_names[a->outcome]);
    /* This end does not count against the runner. */
    if (a->executor_ends && a->outcome == EXECUTION_INFRA && !a->refused)
        json_out_member_bool(&o, "stopping", true);
    if (a->signo) {
        json_out_member_i64(&o, "signal", a->signo);
    } else if (a->exit_status >= 0) {
        json_out_member_i64(&o, "exit", a->exit_status);
    }
    if (a->reward.len > 0)
        json_out_member_raw(&o, "reward_info", buf_str(&a->reward));
    if (a->reason)
        json_out_member_cstr(&o, "reason", a->reason);
    json_out_member_obj(&o, "timings");
    json_out_member_double(&o, "queued",
                           seconds_between(a->claimed_ms, a->run_ms ? a->run_ms : now));
    json_out_member_double(&o, "run", seconds_between(a->run_ms, a->ended_ms));
    json_out_member_double(&o, "score", seconds_between(a->score_ms, now));
    json_out_end_obj(&o);
    if (a->log.path) {
        if (!a->refused) { /* the refused part may be a path that is too long or not valid text */
            json_out_member_cstr(&o, "log", a->log.path);
        }
        json_out_member_str(&o, "log_tail", buf_str(&tail));
    }
    json_out_end_obj(&o);
    buf_done(&tail);
}

static void end_send(struct execution *a);

static void on_end_retry(struct loop_timer *t)
{
    end_send(CONTAINER_OF(t, struct execution, timer));
}

/* Replaces an end that the gateway refuses, for example because its reward makes it too long. The
 * end becomes an error without the reward; an infra end stays infra. Without an accepted end the
 * attempt would lose its lease and be tried again and again. */
static void refuse_end(struct execution *a, int status, struct str why)
{
    char reason[REASON_MAX];

    (void)snprintf(reason, sizeof(reason), "the gateway refused the attempt's end with %d: %.*s",
                   status, (int)MIN_OF(why.len, sizeof(reason)), why.p ? why.p : "");
    /* a character cut in the middle is not valid text */
    reason[utf8_valid_len(str_cstr(reason))] = '\0';
    log_warn(NULL, "an attempt's end is refused, and told without its reward",
             LOG_T("attempt", a->id), LOG_T("reason", reason));
    a->refused = true;
    buf_clear(&a->reward);
    set_outcome(a, a->outcome == EXECUTION_INFRA ? EXECUTION_INFRA : EXECUTION_ERROR, reason);
    end_send(a);
}

static void on_end(void *ctx, int status, struct str body, const struct err *e)
{
    struct execution *a = ctx;
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err bad;

    (void)e;
    a->end_call = NULL;
    if (a->dropped && status != 200) {
        log_end(a, "lost");
        execution_free(a);
        return;
    }
    if (status == 0 || status == 408 || status == 429 || status >= 500) {
        a->retry_ms =
            MIN_OF(MAX_OF(a->retry_ms * 2, (uint64_t)RETRY_FIRST_MS), (uint64_t)RETRY_MAX_MS);
        loop_timer_set(a->x->loop, &a->timer, a->retry_ms, on_end_retry);
        return;
    }
    if (json_parse(&arena, body, &v, &bad))
        v = NULL;
    if ((status == 400 || status == 413 || status == 422) && !a->refused) {
        refuse_end(a, status, json_string(json_get(json_get(v, "error"), "message")));
        arena_done(&arena);
        return;
    }
    if (status == 200) {
        log_end(a, arena_cstr(&arena, json_string(json_get(v, "rollout"))));
    } else if (status == 410) {
        log_end(a, "lost");
    } else {
        log_error(NULL, "the gateway refuses an attempt's end", LOG_T("attempt", a->id),
                  LOG_I("status", status), LOG_S("answer", str_sub(body, 0, 500)));
        log_end(a, "refused");
    }
    arena_done(&arena);
    execution_free(a);
}

static void end_send(struct execution *a)
{
    struct buf body = {0};
    char path[160];

    (void)snprintf(path, sizeof(path), "/attempts/%s/end", a->id);
    write_end(a, &body);
    a->end_call =
        post_start(a->x->gateway, path, a->x->options->key, &body, CALL_TIMEOUT_MS, on_end, a);
}

static void end_begin(struct execution *a)
{
    a->phase = EXECUTION_END;
    attempt_log_close(&a->log);
    if (!a->dropped) {
        end_send(a);
        return;
    }
    log_end(a, "lost");
    execution_free(a);
}

/* --- calls of the executor --- */

static void on_start(struct loop_timer *t)
{
    run_begin(CONTAINER_OF(t, struct execution, timer));
}

static void on_begin(struct loop_task *t)
{
    run_begin(CONTAINER_OF(t, struct execution, begin));
}

static const char *copy_member(struct execution *a, const struct json *v)
{
    struct str s = json_string(v);

    return s.p ? arena_cstr(&a->arena, s) : "";
}

/* Checks an id, which becomes a file's name and a segment of a path. */
static bool id_is_good(const char *id)
{
    return *id && *id != '.' && strlen(id) < 128 &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") ==
               strlen(id);
}

static struct execution *execution_new(struct executor *x, struct slot_row *lane,
                                       const struct json *claim)
{
    struct execution *a = mem_zalloc(sizeof(*a));
    struct buf text = {0};
    const struct json *session;
    struct err e;

    *a = (struct execution){.x = x, .lane = lane, .exit_status = -1, .claimed_ms = clock_ms()};
    a->edition = edition_keep(x->edition);
    a->roster = lane->roster;
    a->way = lane->way;
    a->log.fd = -1;
    json_write(&text, claim);
    (void)json_parse(&a->arena, arena_str(&a->arena, buf_str(&text)), &a->claim, &e);
    buf_done(&text);
    session = json_get(a->claim, "session");
    a->id = copy_member(a, json_get(a->claim, "attempt_id"));
    a->group = json_string(json_get(a->claim, "group"));
    (void)json_to_i64(json_get(a->claim, "rollout"), &a->rollout);
    (void)json_to_i64(json_get(a->claim, "attempt"), &a->number);
    a->session = copy_member(a, json_get(session, "session_id"));
    a->agent_key = copy_member(a, json_get(session, "api_key"));
    a->runner_key = copy_member(a, json_get(session, "runner_key"));
    if (!*a->agent_key)
        a->agent_key = "none"; /* clients need a key, although the gateway does not */
    if (!*a->runner_key)
        a->runner_key = "none";
    lane->running++;
    list_append(&x->attempts, &a->entry);
    (void)map_set(&x->by_id, str_cstr(a->id), a);
    return a;
}

void execution_begin(struct executor *x, const struct json *claim)
{
    struct str runner = json_string(json_get(claim, "runner"));
    struct slot_row *lane = executor_lane(x, runner);
    uint64_t now_us = clock_us();
    struct execution *a;

    if (!lane) {
        log_error(NULL, "the gateway gave an attempt of a runner that was not offered",
                  LOG_S("runner", runner));
        return;
    }
    a = execution_new(x, lane, claim);
    if (!id_is_good(a->id) || !id_is_good(a->session)) {
        log_error(NULL, "the gateway gave an attempt with an id that is none", LOG_T("id", a->id));
        a->dropped = true;
        end_begin(a);
    } else if (lane->next_start_us <= now_us) {
        lane->next_start_us = now_us;
        if (lane->roster->start_rate > 0)
            lane->next_start_us += (uint64_t)(1e6 / lane->roster->start_rate);
        loop_task_post(x->loop, &a->begin, on_begin);
    } else {
        loop_timer_set(x->loop, &a->timer, (lane->next_start_us - now_us + 999) / 1000, on_start);
        lane->next_start_us += (uint64_t)(1e6 / lane->roster->start_rate);
    }
}

void execution_stop(struct execution *a, enum execution_stop why)
{
    if (why == EXECUTION_STOP_DROPPED)
        a->dropped = true;
    else if (why == EXECUTION_STOP_EXECUTOR)
        a->executor_ends = true;
    else if (a->phase > EXECUTION_RUN || a->stopped)
        return;
    if (why == EXECUTION_STOP_DEADLINE)
        set_outcome(a, EXECUTION_TIMEOUT, "the group's deadline passed");
    switch (a->phase) {
    case EXECUTION_QUEUED:
        if (why == EXECUTION_STOP_EXECUTOR)
            set_outcome(a, EXECUTION_INFRA, "the executor is stopping");
        loop_timer_stop(a->x->loop, &a->timer);
        loop_task_cancel(a->x->loop, &a->begin);
        end_begin(a);
        break;
    case EXECUTION_RUN:
        run_stop(a);
        break;
    case EXECUTION_SCORE:
        job_stop(a->job);
        break;
    case EXECUTION_END:
        if (a->dropped && !a->end_call)
            execution_free(a);
        break;
    }
}

bool execution_is_leased(const struct execution *a)
{
    return !a->dropped;
}
