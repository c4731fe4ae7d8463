/*
 * POST /attempts/{id}/end: the end of an attempt. If the attempt may count, its session is
 * completed with the reward and finalized before the end is recorded. So a settled attempt has a
 * durable export. If it does not count, the end is recorded first, then its session is aborted. The
 * worker decides whether a session may be finalized. Without a trained token, or without a required
 * reward, it refuses (422), and the attempt is an error.
 *
 * An error is `infra` if the gateway died under the agent (deaths.c). The worker is called first.
 * If it has just died, its successor answers, and by then the supervisor has recorded the death.
 *
 * If a worker is away or fails, the request is repeated for PATIENCE_MS; its last error becomes the
 * reason. Finalizing has no time limit of its own. Scorers may be called first, and a repeated call
 * would call them again. It could also end as a different attempt while the worker still works on
 * it. A hanging worker is replaced (--hang-timeout). The worker repeats requests to engines itself
 * if that may help, so any other error of an engine is a refusal.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/durable.h"
#include "dispatcher/workers.h"

enum {
    TEXT_MAX = 4096,
    TIMINGS_MAX = 16 << 10,
    AGAIN_MS = 300,
    AGAIN_MAX_MS = 10000,
    PATIENCE_MS = 120000,
    PATIENT_FAILURES = 3
};

/* Calls to the worker, in this order. */
enum ending_step { STEP_COMPLETE, STEP_FINALIZE };

struct ending {
    struct desk *desk;
    struct exchange *x; /* NULL: the executor has left; it may repeat the request */
    char attempt[ATTEMPT_ID_LEN + 1];
    enum outcome outcome;
    struct result result;  /* the executor's report; later the values of the export are added */
    char *complete;        /* body that completes the session */
    bool failed_reward;    /* fail_reward was posted */
    bool finalized;        /* the session is finalized */
    enum ending_step step; /* the call that runs now */
    struct http_fetch *call;
    struct loop_timer again;
    char *said;        /* last error of the worker; NULL: it does not answer */
    uint64_t wait_ms;  /* delay before the next call */
    uint64_t asked_ms; /* start of the present call */
    int failures;      /* failures of the worker so far */
    uint64_t until_ms; /* how long to wait for a worker that is away */
};

static struct attempt *attempt_of(const struct ending *n)
{
    return book_attempt(&n->desk->book, str_cstr(n->attempt));
}

static void ending_free(struct ending *n)
{
    struct attempt *a = attempt_of(n);

    if (a)
        a->ending = false;
    loop_timer_stop(n->desk->loop, &n->again);
    http_fetch_cancel(n->call);
    result_done(&n->result);
    free(n->complete);
    free(n->said);
    n->desk->busy--;
    free(n);
}

static void write_verdict(const struct attempt *a, struct buf *out)
{
    static const char *const words[] = {[ROLLOUT_WAITING] = "retry",
                                        [ROLLOUT_SUCCEEDED] = "succeeded",
                                        [ROLLOUT_FAILED] = "failed",
                                        [ROLLOUT_CANCELLED] = "cancelled"};

    buf_printf(out, "{\"rollout\":\"%s\"}", words[a->verdict]);
}

static void answer_gone(struct exchange *x)
{
    struct err e;

    (void)err_set(&e, ERR_ATTEMPT_ENDED, "the attempt has ended, or never was");
    desk_error(x, &e);
}

/* Reports whether a second end is too late to get the verdict of the first. */
static bool comes_too_late(const struct attempt *a)
{
    return !a || a->lost || a->outcome == OUTCOME_CANCELLED;
}

static void answer_ended(struct exchange *x, const struct attempt *a)
{
    struct buf body = {0};

    if (comes_too_late(a)) {
        answer_gone(x);
        return;
    }
    write_verdict(a, &body);
    desk_json(x, 200, &body);
    buf_done(&body);
}

/* Answers an end that a different request reported first. Its record may not be durable yet. */
static void answer_repeated(struct desk *d, struct exchange *x, const struct attempt *a)
{
    struct desk_answer *answer;

    if (comes_too_late(a)) {
        answer_gone(x);
        return;
    }
    answer = durable_begin(d, x);
    write_verdict(a, &answer->body);
    durable_end(answer, 200);
}

static void ending_answer(struct ending *n)
{
    struct exchange *x = n->x;

    if (x) {
        exchange_watch(x, NULL, NULL);
        answer_ended(x, attempt_of(n));
    }
    ending_free(n);
}

static void ending_fail(struct ending *n, const struct err *e)
{
    if (n->x) {
        exchange_watch(n->x, NULL, NULL);
        desk_error(n->x, e);
    }
    ending_free(n);
}

static void on_end_durable(void *ctx)
{
    ending_answer(ctx);
}

static void on_end_failed(void *ctx, const struct err *e)
{
    ending_fail(ctx, e);
}

/* Records the end, then answers. */
static void write_end_record(struct ending *n)
{
    struct attempt *a = attempt_of(n);
    struct buf record = {0};
    struct err e;
    int rc;

    if (!a || a->ended) { /* the attempt was cancelled meanwhile */
        ending_answer(n);
        return;
    }
    ends_log(a, n->outcome, &n->result);
    record_end(a, n->outcome, n->finalized ? END_FINALIZED : END_OPEN, &n->result, clock_wall_ms(),
               &record);
    rc = desk_write(n->desk, a->rollout->group->spec.id, buf_str(&record),
                    &(struct desk_done){on_end_durable, n, on_end_failed}, &e);
    buf_done(&record);
    if (rc < 0)
        ending_fail(n, &e);
    else if (rc == 1)
        ending_answer(n);
}

static void set_reason(struct ending *n, const char *why)
{
    free(n->result.reason);
    n->result.reason = mem_strdup(why);
}

/* Makes the end an infrastructure failure, which is not the fault of the attempt or its runner. The
 * executor's reason follows `why`. */
static void set_infra(struct ending *n, const char *why)
{
    struct buf reason = {0};

    buf_printf(&reason, "%s%s%s", why, n->result.reason ? "; it ended with: " : "",
               n->result.reason ? n->result.reason : "");
    free(n->result.reason);
    n->result.reason = buf_take(&reason);
    n->outcome = OUTCOME_INFRA;
    n->result.beside = true;
}

/* Changes the outcome of an attempt that seemed to count to one that does not. */
static void stop_counting(struct ending *n, enum outcome outcome, const char *why)
{
    const struct attempt *a = attempt_of(n);
    const char *death = outcome == OUTCOME_ERROR && a ? desk_find_death(n->desk, a) : NULL;

    n->outcome = outcome;
    set_reason(n, why);
    if (death)
        set_infra(n, death);
    write_end_record(n);
}

/* --- calls to the worker --- */

static void ask_ending_step(struct ending *n, enum ending_step step);

static void on_ending_retry(struct loop_timer *t)
{
    struct ending *n = CONTAINER_OF(t, struct ending, again);

    ask_ending_step(n, n->step);
}

static struct str error_code(const struct json *v)
{
    return json_string(json_get(json_get(v, "error"), "code"));
}

static struct str error_message(const struct json *v)
{
    struct str why = json_string(json_get(json_get(v, "error"), "message"));

    return why.p ? why : STR("");
}

/* Reports whether the session's journal is full. Then the attempt has not ended, and its executor
 * reports again later. */
static bool is_journal_full(const struct json *v)
{
    return str_eq_c(error_code(v), "storage_full");
}

static void on_full(struct ending *n, const struct json *v)
{
    struct str why = error_message(v);
    struct err e;

    (void)err_set(&e, ERR_STORAGE_FULL, "the session's worker: %.*s",
                  (int)MIN_OF(why.len, (size_t)200), why.p);
    ending_fail(n, &e);
}

/* Ends the attempt as an infrastructure failure, which does not count against its runner. */
static void end_as_infra(struct ending *n)
{
    n->result.beside |= n->outcome == OUTCOME_OK;
    stop_counting(n, OUTCOME_INFRA, n->said ? n->said : "the session's worker does not answer");
}

static void ask_later(struct ending *n, uint64_t wait_ms)
{
    n->wait_ms = wait_ms;
    if (clock_ms() < n->until_ms)
        loop_timer_set(n->desk->loop, &n->again, wait_ms, on_ending_retry);
    else
        end_as_infra(n);
}

/* Excludes the time of a finalize, successful or not, from PATIENCE_MS. */
static void leave_out(struct ending *n)
{
    if (n->step == STEP_FINALIZE)
        n->until_ms += clock_ms() - n->asked_ms;
}

/* Ends the attempt: a node of the fleet was lost with records of its session. */
static void on_session_lost(struct ending *n)
{
    free(n->said);
    n->said = mem_strdup(SESSION_LOST_REASON);
    end_as_infra(n);
}

/* Repeats the call to a worker that is away, until PATIENCE_MS is over. */
static void on_away(struct ending *n)
{
    free(n->said);
    n->said = NULL;
    leave_out(n);
    ask_later(n, AGAIN_MS);
}

/* Handles an answer that the worker cannot do it now. The time of the first PATIENT_FAILURES failed
 * finalizes does not count against PATIENCE_MS; later ones count. So a slow failing scorer is not
 * called dozens of times. */
static void on_failure(struct ending *n, int status, const struct json *v)
{
    struct str why = error_message(v);
    struct buf said = {0};

    if (n->failures++ < PATIENT_FAILURES)
        leave_out(n);
    buf_printf(&said, "the session's worker: %d %.*s", status, (int)MIN_OF(why.len, TEXT_MAX),
               why.p);
    free(n->said);
    n->said = buf_take(&said);
    ask_later(n, MIN_OF(MAX_OF(2 * n->wait_ms, (uint64_t)AGAIN_MS), (uint64_t)AGAIN_MAX_MS));
}

static void read_result_counts(struct ending *n, const struct json *v)
{
    const struct json *summary = json_get(v, "summary");
    int64_t count = 0;

    if (json_to_i64(json_get(summary, "trained_tokens"), &count) == 0)
        n->result.trained_tokens = (uint64_t)count;
    if (json_to_i64(json_get(summary, "branches"), &count) == 0)
        n->result.trajectories = (uint64_t)count;
    n->result.has_reward = json_to_double(json_get(v, "reward"), &n->result.reward) == 0;
    n->result.has_versions =
        json_to_i64(json_get(summary, "min_global_steps"), &n->result.min_version) == 0 &&
        json_to_i64(json_get(summary, "max_global_steps"), &n->result.max_version) == 0;
    if (json_is(json_get(v, "reward_info"), JSON_OBJECT)) {
        struct buf text = {0};

        json_write(&text, json_get(v, "reward_info"));
        free(n->result.reward_info);
        n->result.reward_info = buf_take(&text);
    }
}

static void write_fail_reward(struct ending *n)
{
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    json_out_obj(&o);
    json_out_member_obj(&o, "reward_info");
    json_out_member_double(&o, "reward", attempt_of(n)->rollout->group->spec.fail_reward);
    json_out_end_obj(&o);
    json_out_member_bool(&o, "finished", n->result.finished);
    json_out_end_obj(&o);
    free(n->complete);
    n->complete = buf_take(&body);
}

/* Handles status 422: no trained token, or no reward. A failed attempt may get the group's
 * fail_reward, once. */
static void on_finalize_refused(struct ending *n, const struct json *v)
{
    if (!str_eq_c(error_code(v), "reward_missing")) {
        stop_counting(n, OUTCOME_ERROR,
                      "the model was not called, or nothing that it said is to be trained");
    } else if (n->outcome == OUTCOME_OK || n->failed_reward) {
        stop_counting(n, OUTCOME_ERROR, "there is no reward");
    } else {
        n->failed_reward = true;
        write_fail_reward(n);
        ask_ending_step(n, STEP_COMPLETE);
    }
}

/* Reports whether a repeated call would fail again: the worker or its engine refuses it. */
static bool is_refusal(int status, const struct json *v)
{
    return worker_refuses(status) || str_eq_c(error_code(v), "engine_invalid");
}

static void on_refusal(struct ending *n, struct arena *arena, const struct json *v)
{
    struct str why = error_message(v);
    const char *what = n->step == STEP_FINALIZE ? "export" : "reward";

    stop_counting(
        n, OUTCOME_ERROR,
        arena_printf(arena, "the gateway refuses the %s: %.*s", what, (int)why.len, why.p).p);
}

static void on_ending_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct ending *n = ctx;
    struct attempt *a = attempt_of(n);
    struct arena arena = {0};
    const struct json *v = NULL;
    bool last = n->step == STEP_FINALIZE;
    struct err bad;

    (void)e;
    n->call = NULL;
    if (json_parse(&arena, body, &v, &bad))
        v = NULL;
    if (!a || a->ended) {
        ending_answer(n);
    } else if (status == 200 && last) {
        n->finalized = true;
        read_result_counts(n, v);
        write_end_record(n);
    } else if (worker_lost_session(status, body)) {
        on_session_lost(n);
    } else if (!last && (status == 200 || status == 410)) {
        /* 410: an end whose record was lost has finalized the session; its export has the result */
        ask_ending_step(n, STEP_FINALIZE);
    } else if (status == 404 || status == 410) {
        stop_counting(n, OUTCOME_ERROR, "the session has ended before its attempt");
    } else if (status == 422 && last) {
        on_finalize_refused(n, v);
    } else if (is_refusal(status, v)) {
        on_refusal(n, &arena, v);
    } else if (is_journal_full(v)) {
        on_full(n, v);
    } else if (status == 0) {
        on_away(n);
    } else {
        on_failure(n, status, v);
    }
    arena_done(&arena);
}

static void ask_ending_step(struct ending *n, enum ending_step step)
{
    static const char *const verbs[] = {[STEP_COMPLETE] = "complete", [STEP_FINALIZE] = "finalize"};
    struct attempt *a = attempt_of(n);
    struct buf body = {0};
    char path[96];

    if (!a || a->ended) {
        ending_answer(n);
        return;
    }
    n->step = step;
    n->asked_ms = clock_ms();
    (void)snprintf(path, sizeof(path), "/sessions/%s/%s", a->session, verbs[step]);
    if (step == STEP_FINALIZE) {
        group_write_export(a->rollout->group, true, &body);
        n->call = worker_call_long(n->desk->workers, str_cstr(a->session), str_cstr(path),
                                   buf_str(&body), on_ending_answer, n);
    } else {
        n->call = worker_call(n->desk->workers, str_cstr(a->session), "POST", str_cstr(path),
                              str_cstr(n->complete), on_ending_answer, n);
    }
    buf_done(&body);
}

/* --- the request --- */

static char *copy_text(struct str s)
{
    return s.p ? mem_strndup(s.p, s.len) : NULL;
}

static char *copy_object(const struct json *v)
{
    struct buf text = {0};

    if (!json_is(v, JSON_OBJECT))
        return NULL;
    json_write(&text, v);
    return buf_take(&text);
}

/* Reports whether the run has finished: as reported, as scored, or by its outcome. */
static bool is_finished(const struct json *body, enum outcome outcome)
{
    const struct json *said = json_get(body, "finished");

    if (!json_is(said, JSON_BOOL))
        said = json_get(json_get(body, "reward_info"), "finished");
    return json_is(said, JSON_BOOL) ? json_is_true(said) : outcome == OUTCOME_OK;
}

/* Writes the body that completes the session: reward, whether the run finished, reason. */
static char *write_complete(const struct json *body, bool finished)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    json_out_obj(&o);
    if (json_is(json_get(body, "reward_info"), JSON_OBJECT))
        json_out_member_value(&o, "reward_info", json_get(body, "reward_info"));
    json_out_member_bool(&o, "finished", finished);
    if (json_string(json_get(body, "reason")).p)
        json_out_member_str(&o, "reason", json_string(json_get(body, "reason")));
    json_out_end_obj(&o);
    return buf_take(&text);
}

static int read_end(struct desk_request *r, struct ending *n, struct err *e)
{
    static const char *const names[] = {"executor", "outcome",     "stopping", "exit",
                                        "signal",   "reward_info", "finished", "reason",
                                        "timings",  "log",         "log_tail"};
    struct field_reader f = {.body = r->body, .e = e};
    struct str reason = {0}, log = {0}, tail = {0}, executor = {0};
    unsigned outcome = OUTCOMES;
    int64_t exit_status = 0, signo = 0;

    if (fields_known(&f, "", names, ARRAY_LEN(names)) ||
        fields_word(&f, "outcome", outcome_names, OUTCOME_CANCELLED, &outcome) ||
        fields_integer(&f, "exit", 0, 255, &exit_status) ||
        fields_integer(&f, "signal", 0, 64, &signo) || fields_object(&f, "reward_info") ||
        fields_object(&f, "timings") || fields_bool(&f, "finished", &n->result.finished) ||
        fields_bool(&f, "stopping", &n->result.beside) ||
        fields_text(&f, "executor", TEXT_MAX, &executor) ||
        fields_text(&f, "reason", TEXT_MAX, &reason) || fields_text(&f, "log", TEXT_MAX, &log) ||
        fields_text(&f, "log_tail", (size_t)4 * TEXT_MAX, &tail))
        return -1;
    if (outcome == OUTCOMES)
        return fields_bad(&f, "outcome", NULL, "ok, timeout, error or infra");
    if (json_text_bytes(json_get(r->body, "timings"), TIMINGS_MAX + 1) > TIMINGS_MAX)
        return err_field(e, "timings", "timings has more than %d bytes", TIMINGS_MAX);
    n->outcome = (enum outcome)outcome;
    n->result.beside &= n->outcome == OUTCOME_INFRA; /* otherwise the outcome is the run's own */
    n->result.finished = is_finished(r->body, n->outcome);
    n->result.has_finished = true;
    n->complete = write_complete(r->body, n->result.finished);
    n->result.reason = copy_text(reason);
    n->result.log = copy_text(log);
    n->result.log_tail = copy_text(tail);
    n->result.reward_info = copy_object(json_get(r->body, "reward_info"));
    n->result.timings = copy_object(json_get(r->body, "timings"));
    return 0;
}

/* Reports whether the request's key is a different executor's, which is not valid here. */
static bool is_others(const struct desk_request *r, const struct attempt *a)
{
    struct str name = str_cstr(a->executor);

    return r->executor.p && !str_eq(name, r->executor) &&
           !(str_starts(name, r->executor) && name.len > r->executor.len &&
             name.p[r->executor.len] == '/');
}

/* Reports whether the request names a different executor, with or without keys. */
static bool is_anothers_word(const struct desk_request *r, const struct attempt *a)
{
    struct str name = json_string(json_get(r->body, "executor"));

    return name.p && !str_eq_c(name, a->executor);
}

/* Checks whether an earlier request still processes the same end. ctx is the attempt's id. */
static bool check_repeated(struct poll *p)
{
    const struct attempt *a = book_attempt(&p->desk->book, str_cstr(p->ctx));

    if (a && !a->ended)
        return false;
    answer_repeated(p->desk, p->x, a);
    return true;
}

static void repeat_over(struct poll *p)
{
    struct err e;

    (void)err_set(&e, ERR_WORKER_UNAVAILABLE, "the attempt's end is still being worked out");
    desk_error(p->x, &e);
}

static void repeat_drop(struct poll *p)
{
    free(p->ctx);
}

static void on_ending_closed(void *ctx, bool delivered)
{
    (void)delivered;
    ((struct ending *)ctx)->x = NULL;
}

/* Acts on the final outcome: the session is finalized if the attempt may count. */
static void begin_outcome(struct ending *n, struct attempt *a)
{
    if (book_verdict(a, n->outcome, true) == ROLLOUT_SUCCEEDED)
        ask_ending_step(n, STEP_COMPLETE);
    else
        write_end_record(n);
}

static void on_alive(void *ctx, int status, struct str body, const struct err *e)
{
    struct ending *n = ctx;
    struct attempt *a = attempt_of(n);
    const char *death = a ? desk_find_death(n->desk, a) : NULL;

    (void)e;
    n->call = NULL;
    if (!a || a->ended) {
        ending_answer(n);
        return;
    }
    if (!death && status == 0)
        death = "the session's worker is away";
    if (!death && worker_lost_session(status, body))
        death = SESSION_LOST_REASON;
    if (death)
        set_infra(n, death);
    begin_outcome(n, a);
}

static void ask_alive(struct ending *n, const struct attempt *a)
{
    n->call = worker_ask_session(n->desk->workers, a->session, on_alive, n);
}

static void start_end(struct ending *n, struct attempt *a)
{
    n->until_ms = clock_ms() + PATIENCE_MS;
    memcpy(n->attempt, a->id, sizeof(n->attempt));
    n->desk->busy++;
    a->ending = true;
    exchange_watch(n->x, on_ending_closed, n);
    if (n->outcome == OUTCOME_ERROR)
        ask_alive(n, a);
    else
        begin_outcome(n, a);
}

void attempts_end(struct desk_request *r)
{
    static const struct poll_kind repeat = {check_repeated, repeat_over, repeat_drop};
    struct attempt *a = book_attempt(&r->desk->book, r->name);
    struct ending *n;
    struct err e = {0};

    if (!a || a->ended) {
        if (a && is_others(r, a))
            a = NULL;
        answer_repeated(r->desk, r->x, a);
        return;
    }
    if (is_others(r, a) || is_anothers_word(r, a)) {
        (void)err_set(&e, ERR_WRONG_SCOPE, "the attempt belongs to another executor");
        desk_error(r->x, &e);
        return;
    }
    if (a->ending) {
        poll_start(r->desk, r->x, &repeat, mem_strdup(a->id), PATIENCE_MS);
        return;
    }
    n = mem_zalloc(sizeof(*n));
    n->desk = r->desk;
    n->x = r->x;
    if (read_end(r, n, &e)) {
        result_done(&n->result);
        free(n->complete);
        free(n);
        desk_error(r->x, &e);
        return;
    }
    start_end(n, a);
}
