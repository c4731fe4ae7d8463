/* Checks what a trainer reports of a turn against the stored answer (report_check.h). */
#include "worker/plane/control/report_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/os/task.h"
#include "common/proc/run_board.h"
#include "worker/dialect/responses.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/logprob_report.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session_view.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"

enum {
    STEP = 4096, /* tokens between two pauses */
    WORST_OF_TURN = 2,
    WORST_KEPT = 64,
    CONTEXT = 8 /* tokens of text on each side of a token that is kept */
};

/* Rounding may lift a logprob this far above 0. Engines write -9999 for -inf. */
static const double ROUNDING = 1e-3, LOGPROB_MIN = -10000;

/* The differences of tokens that one weight version sampled. */
struct version_tally {
    struct str version; /* the weight version; absent: unknown */
    struct run_mismatch positions[RUN_POSITIONS];
};

/* The turn that is checked: its place in the body, and its logprobs. */
struct turn_check {
    uint32_t at;
    const struct checkpoint *t;
    const struct json *ids, *logprobs;
    const int32_t *sampled;
    const float *sampler; /* the sampler's logprobs; NULL: none were recorded */
    float *trained;
    bool repeated; /* the answer had a report of this version before */
    uint32_t span; /* index of the current version's span */
    struct version_tally *tally;

    struct {
        uint32_t position;
        double difference;
    } worst[WORST_OF_TURN]; /* worst first */

    uint32_t n_worst;
};

/* --- checks --- */

/* Sets the error of a member of a turn: its place in the body, then what is wrong. */
__attribute__((format(printf, 4, 5))) static int
refuse_turn(const struct turn_check *c, const char *member, struct err *e, const char *format, ...)
{
    char why[320], name[64];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    (void)snprintf(name, sizeof(name), "turns[%u].%s", c->at, member);
    (void)err_field(e, name, "%s%s", name, why);
    return -1;
}

static int check_members(const struct turn_check *c, const struct json *v, struct err *e)
{
    static const char *const known[] = {"response_id", "ids", "logprobs"};

    if (!json_is(v, JSON_OBJECT))
        return err_field(e, "turns", "turns[%u]: not an object", c->at);
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++) {
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

static int check_room(const struct report_check *v, const struct turn_check *c, struct err *e)
{
    if (checkpoint_takes_report(c->t, v->version))
        return 0;
    return refuse_turn(c, "response_id", e,
                       ": reports of %d versions are stored, the most that a turn has",
                       REPORT_VERSIONS_MAX);
}

/* Finds the answer of a turn, and checks that the lists have its length. */
static int find_turn(const struct report_check *v, struct turn_check *c, const struct json *turn,
                     struct err *e)
{
    struct str id = json_string(json_get(turn, "response_id"));
    uint32_t least;

    if (check_members(c, turn, e))
        return -1;
    c->ids = json_get(turn, "ids");
    c->logprobs = json_get(turn, "logprobs");
    c->t = id.len > 0 ? session_response(v->session, response_bare_id(id)) : NULL;
    if (!c->t)
        return refuse_turn(c, "response_id", e,
                           ": the session has no answer with this response id");
    if (c->t->n == 0)
        return refuse_turn(c, "response_id", e, ": the answer has no token ids");
    if (!json_is(c->ids, JSON_ARRAY))
        return refuse_turn(c, "ids", e, ": a list of the answer's %u ids is missing", c->t->n);
    if (!json_is(c->logprobs, JSON_ARRAY))
        return refuse_turn(c, "logprobs", e, ": a list of numbers is missing");
    least = c->t->n;
    if (c->ids->n < least)
        least -= MIN_OF(session_trimmed_of(v->session, c->t), least - 1);
    if (c->ids->n < least || c->ids->n > c->t->n)
        return refuse_turn(c, "ids", e, ": %u ids, the answer has %u", c->ids->n, c->t->n);
    if (c->logprobs->n != c->ids->n)
        return refuse_turn(c, "logprobs", e, ": %u values for %u ids", c->logprobs->n, c->ids->n);
    return check_room(v, c, e);
}

static int check_token(struct turn_check *c, uint32_t i, struct err *e)
{
    const struct json *value = &c->logprobs->items[i];
    struct str text = json_text(value);
    int64_t id = 0;
    double x = 0;
    char member[48];

    if (json_to_i64(&c->ids->items[i], &id) || id != c->sampled[i]) {
        text = json_text(&c->ids->items[i]);
        (void)snprintf(member, sizeof(member), "ids[%u]", i);
        return refuse_turn(c, member, e, ": %.*s, the session has %d",
                           (int)MIN_OF(text.len, (size_t)32), text.p ? text.p : "",
                           (int)c->sampled[i]);
    }
    c->trained[i] = NAN;
    if (json_is_null(value))
        return 0;
    if (!json_is(value, JSON_NUMBER) || json_to_double(value, &x) ||
        !(x >= LOGPROB_MIN && x <= ROUNDING)) {
        (void)snprintf(member, sizeof(member), "logprobs[%u]", i);
        return refuse_turn(c, member, e,
                           ": %.*s is no logprob: a number from %.0f to 0; send null for a token "
                           "without a logprob",
                           (int)MIN_OF(text.len, (size_t)32), text.p ? text.p : "?", LOGPROB_MIN);
    }
    c->trained[i] = (float)x;
    return 0;
}

/* --- tallies --- */

static struct version_tally *tally_of(struct report_check *v, struct str version)
{
    struct version_tally *x;

    for (size_t i = 0; i < v->tallies.n; i++)
        if (str_eq(v->tallies.at[i]->version, version))
            return v->tallies.at[i];
    x = arena_zalloc(v->arena, sizeof(*x));
    x->version = version;
    *vec_push(&v->tallies) = x;
    return x;
}

/* Returns the weight version that sampled token i. Absent if unknown. Must be called in ascending
 * order of i. */
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

static void count_token(struct report_check *v, struct turn_check *c, uint32_t i)
{
    struct str version = version_at(c, i);
    double difference;

    if (!c->sampler || isnan(c->trained[i]))
        return;
    difference = (double)c->trained[i] - (double)c->sampler[i];
    if (c->repeated) {
        run_mismatch_add(v->repeated, difference);
    } else {
        if (!c->tally || !str_eq(c->tally->version, version))
            c->tally = tally_of(v, version);
        run_mismatch_add(&c->tally->positions[run_position_bucket(i)], difference);
    }
    if (fabs(difference) > ROUNDING)
        note_worst(c, i, difference);
}

/* Writes the text of the tokens [from, to), without incomplete characters. A text that is too long
 * is cut at its beginning or its end. */
static void write_token_text(const struct model *m, const struct turn_check *c, uint32_t from,
                             uint32_t to, bool keep_end, char out[RUN_TEXT_MAX])
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
    if (keep_end && left.len >= RUN_TEXT_MAX)
        left = str_sub(left, left.len - RUN_TEXT_MAX + 1, SIZE_MAX);
    while (left.len > 0 && ((unsigned char)left.p[0] & 0xc0) == 0x80)
        left = str_sub(left, 1, SIZE_MAX);
    run_copy_text(out, RUN_TEXT_MAX, left);
    buf_done(&text);
    buf_done(&clean);
}

/* Keeps the turn's worst tokens with their texts, if they are among the worst of all. */
static void keep_worst(struct report_check *v, struct turn_check *c)
{
    uint64_t now_ms = clock_wall_ms();

    for (uint32_t k = 0; k < c->n_worst && v->worst.n < WORST_KEPT; k++) {
        uint32_t i = c->worst[k].position;
        struct run_token *x;

        if (!run_board_wants_token(v->run, c->worst[k].difference, now_ms))
            break;
        x = vec_push(&v->worst);
        *x = (struct run_token){.at_ms = now_ms,
                                .position = i,
                                .id = c->sampled[i],
                                .sampled = c->sampler[i],
                                .trained = c->trained[i]};
        run_copy_text(x->session, sizeof(x->session), session_id(v->session));
        run_copy_text(x->response, sizeof(x->response), c->t->response_id);
        run_copy_text(x->reported, sizeof(x->reported), v->version);
        c->span = 0;
        run_copy_text(x->version, sizeof(x->version), version_at(c, i));
        write_token_text(v->model, c, i - MIN_OF(i, (uint32_t)CONTEXT), i, true, x->before);
        write_token_text(v->model, c, i, i + 1, false, x->token);
        write_token_text(v->model, c, i + 1, MIN_OF(c->t->n, i + 1 + CONTEXT), false, x->after);
    }
}

/* --- one turn --- */

MAY_PAUSE static int compare_turn(struct report_check *v, struct turn_check *c, struct err *e)
{
    for (uint32_t i = 0; i < c->t->n; i++) {
        if (i >= c->ids->n) {
            c->trained[i] = NAN; /* a later turn dropped the token */
            continue;
        }
        if (check_token(c, i, e))
            return -1;
        count_token(v, c, i);
        if (i % STEP == STEP - 1 && task_pause(e))
            return -1;
    }
    keep_worst(v, c);
    return 0;
}

int report_check_turn(struct report_check *v, uint32_t at, const struct json *turn,
                      struct reported_turn *ret, struct err *e)
{
    struct turn_check c = {.at = at};
    struct recall r = {.session = v->session, .holds = true};
    int rc;

    if (find_turn(v, &c, turn, e))
        return -1;
    CHECK(c.t);
    c.repeated = checkpoint_report(c.t, v->version) != NULL;
    if (c.repeated && !v->repeated)
        v->repeated = arena_zalloc(v->arena, sizeof(*v->repeated));
    recall_checkpoint(&r, c.t);
    rc = recall_read(&r, e);
    if (rc == 0) {
        c.sampled = checkpoint_ids(c.t);
        c.sampler = checkpoint_logprobs(c.t);
        c.trained = arena_alloc(v->arena, c.t->n * sizeof(*c.trained));
        rc = compare_turn(v, &c, e);
    }
    recall_done(&r);
    *ret = (struct reported_turn){c.t, c.trained};
    return rc;
}

int report_check_room(const struct report_check *v, uint32_t at, const struct checkpoint *answer,
                      struct err *e)
{
    struct turn_check c = {.at = at, .t = answer};

    return check_room(v, &c, e);
}

/* --- figures --- */

/* Adds the tallies and tokens to the figures of the run. Returns the sum, including repeated
 * reports. */
static struct run_mismatch count_tallies(const struct report_check *v, struct metrics_page *page)
{
    struct run_mismatch all = {0};
    uint64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < v->tallies.n; i++) {
        const struct version_tally *x = v->tallies.at[i];

        run_board_add_mismatch(v->run, page, x->version, x->positions, now_ms);
        for (int k = 0; k < RUN_POSITIONS; k++)
            run_mismatch_merge(&all, &x->positions[k]);
    }
    if (v->repeated)
        run_mismatch_merge(&all, v->repeated);
    for (size_t i = 0; i < v->worst.n; i++)
        run_board_add_token(v->run, &v->worst.at[i], now_ms);
    return all;
}

void report_check_count(const struct report_check *v, struct metrics_page *page, struct json_out *o)
{
    struct run_mismatch all = count_tallies(v, page);

    run_mismatch_put(&all, o);
}

void report_check_done(struct report_check *v)
{
    vec_done(&v->tallies);
    vec_done(&v->worst);
}
