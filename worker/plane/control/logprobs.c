/* POST /sessions/{id}/logprobs: a trainer's logprobs of answers. All of them are checked against
 * the stored ids before the first record is written. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/codec/utf8.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/run_board.h"
#include "worker/dialect/responses.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/awaits.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/logprob_report.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session_view.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"

enum {
    TURNS_MAX = 10000, /* of a request */
    STEP = 4096,       /* tokens between two pauses */
    WORST_OF_TURN = 2,
    WORST_KEPT = 64,
    CONTEXT = 8 /* tokens around a token that is kept */
};

/* Rounding may lift a logprob this far above 0. */
static const double ROUNDING = 1e-3;

/* The differences of tokens that one weight version sampled. */
struct version_tally {
    struct str version; /* absent: not known */
    struct run_mismatch positions[RUN_POSITIONS];
};

/* A turn of the request that was checked. */
struct reported_turn {
    struct checkpoint *answer;
    float *logprobs;
};

struct reporting {
    struct service *service;
    struct answering *answer;
    struct session *s;  /* pinned */
    struct arena arena; /* of the body and of what follows */
    const struct json *body;
    struct str version;
    struct reported_turn *turns;
    uint32_t n_turns;
    VEC(struct version_tally *) tallies;
    VEC(struct run_token) worst;
    struct waiter durable;
};

/* The turn at hand: where it is in the body, and what of it is compared. */
struct turn_check {
    uint32_t at;
    struct checkpoint *t;
    const struct json *ids, *logprobs;
    const int32_t *sampled;
    const float *sampler; /* NULL: no logprobs were recorded */
    float *trained;
    uint32_t span; /* of the versions */
    struct version_tally *tally;

    struct {
        uint32_t position;
        double difference;
    } worst[WORST_OF_TURN]; /* worst first */

    uint32_t n_worst;
};

static void reporting_free(struct reporting *v)
{
    session_unpin(v->service->calls.store, v->s);
    vec_done(&v->tallies);
    vec_done(&v->worst);
    arena_done(&v->arena);
    free(v);
}

/* --- checks --- */

/* The error of a member of a turn: its place, then what is wrong. */
__attribute__((format(printf, 4, 5))) static int
refuse(const struct turn_check *c, const char *member, struct err *e, const char *format, ...)
{
    char why[320], name[64];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    (void)snprintf(name, sizeof(name), "turns[%u].%s", c->at, member);
    return err_field(e, name, "%s%s", name, why);
}

static int check_members(const struct turn_check *c, const struct json *v, struct err *e)
{
    static const char *const known[] = {"response_id", "ids", "logprobs"};

    if (!json_is(v, JSON_OBJECT))
        return err_field(e, "turns", "turns[%u]: not an object", c->at);
    for (uint32_t i = 0; i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);
        bool found = false;

        for (size_t k = 0; k < ARRAY_LEN(known); k++)
            found = found || str_eq_c(name, known[k]);
        if (!found)
            return err_field(e, "turns",
                             "turns[%u]: unknown field \"%.*s\": a turn has response_id, ids and "
                             "logprobs",
                             c->at, (int)MIN_OF(name.len, (size_t)64), name.p);
    }
    return 0;
}

/* The answer, and lists of the right length. */
static int find_turn(const struct reporting *v, struct turn_check *c, const struct json *turn,
                     struct err *e)
{
    struct str id = json_string(json_get(turn, "response_id"));
    uint32_t least;

    if (check_members(c, turn, e))
        return -1;
    c->ids = json_get(turn, "ids");
    c->logprobs = json_get(turn, "logprobs");
    c->t = id.len > 0 ? session_response(v->s, response_bare_id(id)) : NULL;
    if (!c->t)
        return refuse(c, "response_id", e, ": the session has no answer with this response id");
    if (c->t->n == 0)
        return refuse(c, "response_id", e, ": the answer has no token ids");
    if (!json_is(c->ids, JSON_ARRAY))
        return refuse(c, "ids", e, ": a list of the answer's %u ids is missing", c->t->n);
    if (!json_is(c->logprobs, JSON_ARRAY))
        return refuse(c, "logprobs", e, ": a list of numbers is missing");
    least = c->t->n;
    if (c->ids->n < least)
        least -= MIN_OF(session_trimmed_of(v->s, c->t), least - 1);
    if (c->ids->n < least || c->ids->n > c->t->n)
        return refuse(c, "ids", e, ": %u ids, the answer has %u", c->ids->n, c->t->n);
    if (c->logprobs->n != c->ids->n)
        return refuse(c, "logprobs", e, ": %u values for %u ids", c->logprobs->n, c->ids->n);
    if (!checkpoint_takes_report(c->t, v->version))
        return refuse(c, "response_id", e,
                      ": reports of %d versions are stored, the most that a "
                      "turn has",
                      REPORT_VERSIONS_MAX);
    return 0;
}

static int read_value(struct turn_check *c, uint32_t i, struct err *e)
{
    const struct json *value = &c->logprobs->items[i];
    struct str text = json_text(value);
    int64_t id = 0;
    double x = 0;
    char member[48];

    if (json_to_i64(&c->ids->items[i], &id) || id != c->sampled[i]) {
        text = json_text(&c->ids->items[i]);
        (void)snprintf(member, sizeof(member), "ids[%u]", i);
        return refuse(c, member, e, ": %.*s, the session has %d", (int)MIN_OF(text.len, (size_t)32),
                      text.p ? text.p : "", (int)c->sampled[i]);
    }
    c->trained[i] = NAN;
    if (json_is_null(value))
        return 0;
    if (!json_is(value, JSON_NUMBER) || json_to_double(value, &x) || !isfinite((float)x) ||
        x > ROUNDING) {
        (void)snprintf(member, sizeof(member), "logprobs[%u]", i);
        return refuse(c, member, e, ": %.*s is no logprob: a number of at most 0, or null",
                      (int)MIN_OF(text.len, (size_t)32), text.p ? text.p : "?");
    }
    c->trained[i] = (float)x;
    return 0;
}

/* --- tallies --- */

static struct version_tally *tally_of(struct reporting *v, struct str version)
{
    struct version_tally *x;

    for (size_t i = 0; i < v->tallies.n; i++)
        if (str_eq(v->tallies.at[i]->version, version))
            return v->tallies.at[i];
    x = arena_zalloc(&v->arena, sizeof(*x));
    x->version = version;
    *vec_push(&v->tallies) = x;
    return x;
}

/* The weight version that sampled token i, absent if it is not known. Called in order. */
static struct str version_at(struct turn_check *c, uint32_t i)
{
    const struct checkpoint *t = c->t;

    while (c->span < t->n_versions && t->versions[c->span].end <= i)
        c->span++;
    return c->span < t->n_versions && t->versions[c->span].start <= i ? t->versions[c->span].version
                                                                      : (struct str){0};
}

static void note_worst(struct turn_check *c, uint32_t position, double difference)
{
    uint32_t at = c->n_worst < WORST_OF_TURN ? c->n_worst++ : WORST_OF_TURN;

    for (; at > 0 && fabs(c->worst[at - 1].difference) < fabs(difference); at--)
        if (at < WORST_OF_TURN)
            c->worst[at] = c->worst[at - 1];
    if (at < WORST_OF_TURN) {
        c->worst[at].position = position;
        c->worst[at].difference = difference;
    }
}

static void count_token(struct reporting *v, struct turn_check *c, uint32_t i)
{
    struct str version = version_at(c, i);
    double difference;

    if (!c->sampler || isnan(c->trained[i]))
        return;
    if (!c->tally || !str_eq(c->tally->version, version))
        c->tally = tally_of(v, version);
    difference = (double)c->trained[i] - (double)c->sampler[i];
    run_mismatch_add(&c->tally->positions[run_position_bucket(i)], difference);
    if (fabs(difference) > ROUNDING)
        note_worst(c, i, difference);
}

/* The text of some of the answer's tokens, with what is no whole character left out. */
static void write_text(const struct model *m, const struct turn_check *c, uint32_t from,
                       uint32_t to, char out[RUN_TEXT_MAX])
{
    struct buf text = {0}, clean = {0};
    struct str left;

    for (uint32_t i = from; i < to; i++)
        buf_add_str(&text, tokenizer_text(model_tokenizer(m), c->sampled[i]));
    left = buf_str(&text);
    while (left.len > 0) {
        size_t n = utf8_valid_len(left);

        buf_add_str(&clean, str_sub(left, 0, n));
        left = str_sub(left, n + 1, SIZE_MAX);
    }
    left = buf_str(&clean);
    if (left.len >= RUN_TEXT_MAX) /* the end is next to the token */
        left = str_sub(left, from < to && to < c->t->n ? left.len - RUN_TEXT_MAX + 1 : 0,
                       RUN_TEXT_MAX - 1);
    while (left.len > 0 && ((unsigned char)left.p[0] & 0xc0) == 0x80)
        left = str_sub(left, 1, SIZE_MAX);
    left = str_sub(left, 0, utf8_valid_len(left));
    if (left.len > 0)
        memcpy(out, left.p, left.len);
    out[left.len] = '\0';
    buf_done(&text);
    buf_done(&clean);
}

static void copy_name(char *to, size_t size, struct str name)
{
    size_t n = MIN_OF(name.len, size - 1);

    if (n > 0)
        memcpy(to, name.p, n);
    to[n] = '\0';
}

/* Keeps the turn's worst tokens with their texts, if they are among the worst of all. */
static void keep_worst(struct reporting *v, struct turn_check *c)
{
    const struct model *m = v->service->calls.model;
    uint64_t now_ms = clock_wall_ms();

    for (uint32_t k = 0; k < c->n_worst && v->worst.n < WORST_KEPT; k++) {
        uint32_t i = c->worst[k].position;
        struct run_token *x;

        if (!run_board_wants_token(v->service->heritage->board->run, c->worst[k].difference,
                                   now_ms))
            break;
        x = vec_push(&v->worst);
        *x = (struct run_token){.at_ms = now_ms,
                                .position = i,
                                .id = c->sampled[i],
                                .sampled = c->sampler[i],
                                .trained = c->trained[i]};
        copy_name(x->session, sizeof(x->session), session_id(v->s));
        copy_name(x->response, sizeof(x->response), c->t->response_id);
        copy_name(x->reported, sizeof(x->reported), v->version);
        c->span = 0;
        copy_name(x->version, sizeof(x->version), version_at(c, i));
        write_text(m, c, i - MIN_OF(i, (uint32_t)CONTEXT), i, x->before);
        write_text(m, c, i, i + 1, x->token);
        write_text(m, c, i + 1, MIN_OF(c->t->n, i + 1 + CONTEXT), x->after);
    }
}

/* --- the request --- */

/* Reads the answer's ids and logprobs back, and keeps them in memory while `r` has them. */
MAY_PAUSE static int recall_turn(struct recall *r, const struct checkpoint *t, struct err *e)
{
    int rc;

    recall_checkpoint(r, t);
    while ((rc = recall_some(r, RECALL_STEP, e)) == 1 && task_pause(e) == 0)
        ;
    return rc == 0 ? 0 : -1;
}

MAY_PAUSE static int compare_turn(struct reporting *v, struct turn_check *c, struct err *e)
{
    for (uint32_t i = 0; i < c->t->n; i++) {
        if (i >= c->ids->n) {
            c->trained[i] = NAN; /* dropped by a later turn */
            continue;
        }
        if (read_value(c, i, e))
            return -1;
        count_token(v, c, i);
        if (i % STEP == STEP - 1 && task_pause(e))
            return -1;
    }
    keep_worst(v, c);
    return 0;
}

MAY_PAUSE static int check_turn(struct reporting *v, uint32_t at, const struct json *turn,
                                struct err *e)
{
    struct turn_check c = {.at = at};
    struct recall *r;
    int rc;

    if (find_turn(v, &c, turn, e))
        return -1;
    r = recall_new(v->s);
    rc = recall_turn(r, c.t, e);
    if (rc == 0) {
        c.sampled = checkpoint_ids(c.t);
        c.sampler = checkpoint_logprobs(c.t);
        c.trained = arena_alloc(&v->arena, c.t->n * sizeof(*c.trained));
        rc = compare_turn(v, &c, e);
    }
    recall_free(r);
    v->turns[at] = (struct reported_turn){c.t, c.trained};
    return rc;
}

static int read_version(struct reporting *v, struct err *e)
{
    v->version = json_text(json_get(v->body, "version"));
    if (v->version.len == 0)
        return err_field(e, "version", "version is missing: the weights of these logprobs");
    if (v->version.len > REPORT_VERSION_BYTES)
        return err_field(e, "version", "version: %zu bytes, at most %d", v->version.len,
                         REPORT_VERSION_BYTES);
    return 0;
}

MAY_PAUSE static int check_turns(struct reporting *v, struct err *e)
{
    const struct json *turns = json_get(v->body, "turns");

    if (read_version(v, e))
        return -1;
    if (!json_is(turns, JSON_ARRAY) || turns->n == 0)
        return err_field(e, "turns", "turns is missing: a list of objects");
    if (turns->n > TURNS_MAX)
        return err_field(e, "turns", "turns: %u, at most %d in one request", turns->n, TURNS_MAX);
    v->turns = arena_calloc(&v->arena, turns->n, sizeof(*v->turns));
    for (; v->n_turns < turns->n; v->n_turns++)
        if (check_turn(v, v->n_turns, &turns->items[v->n_turns], e) || task_pause(e))
            return -1;
    return 0;
}

/* --- records --- */

static bool is_gone(const struct reporting *v)
{
    bool ended;

    return session_find_any(v->service->calls.store, session_id(v->s), &ended) != v->s ||
           session_phase(v->s) == SESSION_ABORTED || !session_resident(v->s);
}

MAY_PAUSE static int write_turns(struct reporting *v, struct err *e)
{
    struct ledger *l = v->service->calls.ledger;
    struct buf record = {0};
    int rc = 0;

    for (uint32_t i = 0; i < v->n_turns && rc == 0; i++) {
        struct ledger_done done = {0};

        if (is_gone(v)) {
            rc = err_set(e, ERR_SESSION_ENDED, "the session has ended");
            break;
        }
        if (i == v->n_turns - 1)
            done = (struct ledger_done){waiter_on_event, &v->durable};
        buf_clear(&record);
        session_report_record(v->s, v->turns[i].answer, v->version, v->turns[i].logprobs,
                              clock_wall_ms(), &record);
        rc = ledger_write(l, session_id(v->s), buf_str(&record), done, e);
        if (rc == 0 && i < v->n_turns - 1)
            rc = task_pause(e);
    }
    buf_done(&record);
    return rc ? -1 : await_durable(v->service, &v->durable, e);
}

/* Adds it all to the figures of the run; returns the sum. */
static struct run_mismatch count_report(const struct reporting *v)
{
    struct run_board *run = v->service->heritage->board->run;
    struct run_mismatch all = {0};

    for (size_t i = 0; i < v->tallies.n; i++) {
        const struct version_tally *x = v->tallies.at[i];

        run_board_add_mismatch(run, v->service->calls.page, x->version, x->positions,
                               clock_wall_ms());
        for (int k = 0; k < RUN_POSITIONS; k++)
            run_mismatch_merge(&all, &x->positions[k]);
    }
    for (size_t i = 0; i < v->worst.n; i++)
        run_board_add_token(run, &v->worst.at[i], clock_wall_ms());
    return all;
}

static void put_number(struct json_out *o, const char *name, double v, int64_t tokens)
{
    json_out_key(o, name);
    if (tokens > 0)
        json_out_double(o, v);
    else
        json_out_null(o);
}

static void write_answer(struct reporting *v)
{
    struct run_mismatch all = count_report(v);
    struct json_out o = json_out_to(&v->answer->out);
    double n = (double)MAX_OF(all.tokens, (int64_t)1);

    json_out_obj(&o);
    json_out_member_str(&o, "status", STR("ok"));
    json_out_member_i64(&o, "turns", v->n_turns);
    json_out_member_i64(&o, "tokens", all.tokens);
    put_number(&o, "mean", (double)all.sum / 1e9 / n, all.tokens);
    put_number(&o, "mean_abs", (double)all.sum_abs / 1e9 / n, all.tokens);
    put_number(&o, "p99", run_mismatch_p99(&all), all.tokens);
    put_number(&o, "max", all.max, all.tokens);
    json_out_end_obj(&o);
}

static void report_turns(struct answering *a, void *ctx)
{
    struct reporting *v = ctx;
    struct err e = {0};

    v->answer = a;
    if (check_turns(v, &e) == 0 && write_turns(v, &e) == 0) {
        write_answer(v);
        answering_end(a);
    } else {
        answering_fail(a, "", &e);
    }
    reporting_free(v);
}

void control_logprobs(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct reporting *v;

    if (!s) {
        respond_error(r, NULL, &e);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->service = r->service;
    v->s = s;
    session_pin(s);
    v->arena.sum = &r->service->calls.request_bytes;
    v->body = control_take_body(r, &v->arena);
    answering_start(r, report_turns, v);
}
