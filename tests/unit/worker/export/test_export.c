#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/export/build/export.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"
#include "worker/text/request/chat.h"

static char some_model;
static const struct model *const MODEL = (const struct model *)(const void *)&some_model;

/* Returns the model for an export. The viewer's format reads texts of ids, which a stand-in model
 * does not have. */
static const struct model *model_for(const struct export_options *o)
{
    return o->format == EXPORT_VIEW ? NULL : MODEL;
}

/* --- a session --- */

struct world {
    struct session_store *store;
    struct session *s;
    struct arena arena;
    unsigned calls;
    struct export_options o; /* of the test's exports; initially the defaults */
    struct err e;
};

static void apply(struct world *w, struct buf *record)
{
    struct err e = {0};

    cr_assert_eq(session_apply(w->store, buf_str(record), &e), 0, "%s", e.text);
    buf_done(record);
}

static void world_init(struct world *w, const char *history)
{
    struct session_defaults d;
    struct buf record = {0};
    struct err e = {0};
    bool ended;

    *w = (struct world){0};
    session_defaults_init(&d);
    d.history = history;
    w->store = session_store_new(NULL, &d);
    cr_assert_eq(session_create_record(w->store, STR("w0-1"), NULL, 1, &record, &e), 0);
    apply(w, &record);
    w->s = session_find(w->store, STR("w0-1"), &ended);
    export_options_init(&w->o);
}

static void world_open(struct world *w)
{
    world_init(w, "tree");
}

static void world_close(struct world *w)
{
    session_store_free(w->store);
    arena_done(&w->arena);
}

static const struct json *json(struct world *w, const char *text)
{
    const struct json *v = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(&w->arena, arena_str(&w->arena, str_cstr(text)), &v, &e), 0, "%s",
                 e.text);
    return v;
}

/* Adds a turn. experts: bytes of a row; rows cover all new tokens. */
static void turn(struct world *w, const char *messages, const char *answer, bool logprobs,
                 uint32_t experts)
{
    struct chat chat = {.messages = json(w, messages)};
    struct session_call_input in = {.chat = &chat, .temperature = 1};
    struct session_answer a = {.finish_reason = STR_LIT("stop")};
    struct session_plan *p;
    struct buf record = {0};
    struct err e = {0};
    size_t n = strlen(answer);
    int32_t *ids = arena_calloc(&w->arena, n + 1, sizeof(*ids));
    float *lp = arena_calloc(&w->arena, n + 1, sizeof(*lp));

    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)answer[i];
    ids[n] = 257;
    cr_assert_eq(session_prepare(w->s, NULL, &w->arena, &in, &p, &e), 0, "%s", e.text);
    a.ids = (struct token_span){ids, n + 1};
    a.logprobs = logprobs ? lp : NULL;
    a.response_id = arena_printf(&w->arena, "r%u", w->calls++);
    a.message =
        json(w, arena_printf(&w->arena, "{\"role\":\"assistant\",\"content\":\"%s\"}", answer).p);
    if (experts) {
        uint32_t from = p->reused ? (uint32_t)p->reused - 1 : 0;
        uint32_t rows = (uint32_t)(p->prompt.n + n + 1) - 1 - from;
        char *block = arena_alloc(&w->arena, (size_t)rows * experts);

        for (uint32_t i = 0; i < rows * experts; i++)
            block[i] = (char)(from + i / experts);
        a.rows[ROWS_EXPERTS] =
            (struct token_rows){str_of(block, (size_t)rows * experts), from, rows, 1, experts};
    }
    cr_assert_eq(session_commit_record(p, &a, 1, 2, &record, &e), 0, "%s", e.text);
    apply(w, &record);
}

/* A reader of exports. */
struct reader {
    struct export_out out;
    struct buf bytes, taken; /* taken: bytes that were taken at pauses */
    bool takes, fails;       /* takes the bytes at each pause; fails at pause `at` */
    size_t pauses, at;       /* number of pauses so far; the one at which fn is called */
    void (*fn)(struct world *w);
    struct world *w;
};

static int on_pause(struct export_out *o, struct err *e)
{
    struct reader *r = CONTAINER_OF(o, struct reader, out);

    if (r->takes) {
        buf_add_str(&r->taken, buf_str(&r->bytes));
        buf_clear(&r->bytes);
    }
    if (r->pauses++ != r->at)
        return 0;
    if (r->fn)
        r->fn(r->w);
    return r->fails ? cancel_fail(e) : 0;
}

static int read_export(struct world *w, const struct export_options *o, struct reader *r,
                       struct err *e)
{
    struct export *x;
    int rc;

    r->out = (struct export_out){.bytes = &r->bytes, .flow = on_pause};
    r->w = w;
    cr_assert_eq(export_new(w->s, model_for(o), NULL, o, &x, e), 0, "%s", e->text);
    rc = export_write(x, &r->out, e);
    export_free(x);
    buf_add_str(&r->taken, buf_str(&r->bytes));
    buf_done(&r->bytes);
    return rc;
}

static void export_all(struct world *w, const struct export_options *o, struct buf *out)
{
    struct reader r = {.at = SIZE_MAX};
    struct err e = {0};

    cr_assert_eq(read_export(w, o, &r, &e), 0, "%s", e.text);
    *out = r.taken;
}

/* Checks that the export fails. Returns the number of bytes before the error. */
static size_t expect_fails(struct world *w, const struct export_options *o, const char *what)
{
    struct reader r = {.at = SIZE_MAX};
    struct err e = {0};
    size_t n;

    cr_expect_eq(read_export(w, o, &r, &e), -1);
    cr_expect_eq(e.kind, ERR_UNASSEMBLABLE);
    cr_expect_neq(str_find(str_cstr(e.text), str_cstr(what), 0), SIZE_MAX, "%s", e.text);
    n = r.taken.len;
    buf_done(&r.taken);
    return n;
}

static void expect_fails_at_once(struct world *w, const struct export_options *o, const char *what)
{
    cr_expect_eq(expect_fails(w, o, what), 0);
}

#define U(t) "{\"role\":\"user\",\"content\":\"" t "\"}"
#define A(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"

static void branches(struct world *w)
{
    turn(w, "[" U("q") "]", "one", true, 0);
    turn(w, "[" U("q") "," A("one") "," U("r") "]", "two", true, 0);
    turn(w, "[" U("q") "," A("one") "," U("s") "]", "three", true, 0);
}

TEST_WITH(export, bytes_are_the_same_however_they_are_taken, world)
{
    branches(f);
    for (int format = 0; format < EXPORT_FORMAT_COUNT; format++) {
        struct reader whole = {.at = SIZE_MAX}, pieces = {.at = SIZE_MAX, .takes = true};
        struct export_options o;
        struct err e = {0};

        export_options_init(&o);
        o.format = (enum export_format)format;
        cr_assert_eq(read_export(f, &o, &whole, &e), 0, "%s", e.text);
        cr_assert_eq(read_export(f, &o, &pieces, &e), 0, "%s", e.text);
        cr_expect(str_eq(buf_str(&whole.taken), buf_str(&pieces.taken)), "format %d", format);
        cr_expect_gt(whole.taken.len, 100);
        buf_done(&whole.taken);
        buf_done(&pieces.taken);
    }
}

static size_t count_text(const struct buf *bytes, const char *what)
{
    size_t n = 0;

    for (size_t at = 0; (at = str_find(buf_str(bytes), str_cstr(what), at)) != SIZE_MAX; at++)
        n++;
    return n;
}

/* A trajectory of the native formats says it, too, because sinks and lines have it alone. */
TEST_WITH(export, every_format_says_that_answers_may_be_missing, world)
{
    static const char said[] = "may be missing: a node was lost";
    struct buf record = {0};

    branches(f);
    for (int marked = 0; marked < 2; marked++) {
        for (int format = 0; format < EXPORT_FORMAT_COUNT; format++) {
            bool native = format == EXPORT_JSON || format == EXPORT_MSGPACK;
            struct export_options o;
            struct buf out;

            export_options_init(&o);
            o.format = (enum export_format)format;
            export_all(f, &o, &out);
            if (native)
                cr_expect_eq(count_text(&out, said), marked ? 3 : 0, "format %d", format);
            else
                cr_expect_eq(count_text(&out, said) > 0, marked, "format %d", format);
            buf_done(&out);
        }
        session_doubt_record(session_id(f->s), 1000, 2000, 3, &record);
        apply(f, &record);
    }
}

TEST_WITH(export, ends_at_the_pause_where_it_is_cancelled, world)
{
    branches(f);
    for (int format = 0; format < EXPORT_FORMAT_COUNT; format++) {
        struct export_options o;
        int rc = -1;

        export_options_init(&o);
        o.format = (enum export_format)format;
        for (size_t at = 0; rc; at++) {
            struct reader r = {.at = at, .fails = true};
            struct err e = {0};

            rc = read_export(f, &o, &r, &e);
            cr_assert(rc == 0 || (e.kind == ERR_CANCELLED && r.pauses == at + 1), "format %d: %s",
                      format, e.text);
            cr_assert(rc || r.pauses == at, "an end that was not asked for");
            buf_done(&r.taken);
        }
    }
}

/* A value with the deepest nesting of a reward is nested too deep within a turn. */
TEST_WITH(export, what_cannot_be_packed_is_an_error, world)
{
    enum { DEPTH = 511 };

    struct buf text = {0}, record = {0}, out = {0};

    branches(f);
    buf_puts(&text, "{\"k\":");
    for (int i = 0; i < DEPTH; i++)
        buf_add_c(&text, '[');
    for (int i = 0; i < DEPTH; i++)
        buf_add_c(&text, ']');
    buf_puts(&text, "}");
    buf_add_c(&text, 0);
    cr_assert_eq(session_reward_record(f->s, json(f, text.p), STR("r0"), 3, &record, &f->e), 0,
                 "%s", f->e.text);
    apply(f, &record);
    export_all(f, &f->o, &out);
    cr_expect_gt(out.len, (size_t)2 * DEPTH);
    f->o.format = EXPORT_MSGPACK;
    (void)expect_fails(f, &f->o, "cannot be read");
    buf_done(&text);
    buf_done(&out);
}

/* Exports write such a list unchanged. */
TEST_WITH(export, dropped_fields_that_are_no_json_are_not_recorded, world)
{
    struct session_answer a = {.finish_reason = STR_LIT("stop"), .response_id = STR_LIT("r0")};
    struct session_call_input in = {.dropped_fields = STR_LIT("[\"n\"")};
    struct chat chat = {0};
    struct session_plan *p;
    struct buf record = {0};
    int32_t id = 257;

    chat.messages = json(f, "[" U("q") "]");
    in.chat = &chat;
    a.ids = (struct token_span){&id, 1};
    a.message = json(f, A("x"));
    cr_assert_eq(session_prepare(f->s, NULL, &f->arena, &in, &p, &f->e), 0, "%s", f->e.text);
    cr_assert_eq(session_commit_record(p, &a, 1, 2, &record, &f->e), 0, "%s", f->e.text);
    cr_expect_eq(session_apply(f->store, buf_str(&record), &f->e), -1);
    cr_expect_str_eq(f->e.text, "session record: a value is not JSON");
    session_release(f->store, p);
    buf_done(&record);
}

static void delete_session(struct world *w)
{
    struct buf record = {0};
    struct err e = {0};

    cr_assert_eq(session_end_record(w->s, SESSION_END_DELETE, NULL, 9, &record, &e), 0);
    apply(w, &record);
}

TEST_WITH(export, goes_on_while_the_session_is_deleted, world)
{
    struct reader r = {.fn = delete_session};

    branches(f);
    cr_assert_eq(read_export(f, &f->o, &r, &f->e), 0, "%s", f->e.text);
    cr_expect(str_ends(buf_str(&r.taken), STR("}}")));
    buf_done(&r.taken);
}

/* Returns the length of a safetensors file by its header. */
static size_t told_bytes(struct world *w, const struct buf *file)
{
    const struct json *header;
    uint64_t n, end = 0;

    cr_assert_geq(file->len, sizeof(n));
    memcpy(&n, file->p, sizeof(n));
    cr_assert_leq(n, file->len - sizeof(n));
    header = json(w, arena_str(&w->arena, str_of(file->p + sizeof(n), n)).p);
    for (uint32_t i = 0; i < header->n; i++) {
        int64_t at;

        if (json_to_i64(json_at(json_get(&header->members[i].value, "data_offsets"), 1), &at) == 0)
            end = MAX_OF(end, (uint64_t)at);
    }
    return sizeof(n) + n + end;
}

/* Sets a reward of the session, and a teacher's score with two alternatives for each token on the
 * path to its newest answer. */
static void tell_more(struct world *w)
{
    struct checkpoint *head = w->s->forest.checkpoints.at[w->s->forest.checkpoints.n - 1];
    float *logprobs = arena_calloc(&w->arena, 2 * (size_t)head->total, sizeof(*logprobs));
    int32_t *ids = arena_calloc(&w->arena, 2 * (size_t)head->total, sizeof(*ids));
    struct score score = {SCORE_TEACHER, STR_LIT("big"), 2, head, logprobs, ids, logprobs};
    struct buf record = {0};
    struct err e = {0};

    cr_assert_eq(
        session_reward_record(w->s, json(w, "{\"reward\": 1}"), (struct str){0}, 9, &record, &e),
        0);
    apply(w, &record);
    session_score_record(w->s, &score, 9, &record);
    apply(w, &record);
}

/* Adds both at pause k of an export of one path. Returns false if the export has fewer pauses. */
static bool more_comes_at(enum export_format format, size_t k)
{
    struct reader r = {.at = k, .fn = tell_more};
    struct export_options o;
    struct world w;
    struct err e = {0};

    world_init(&w, "tree");
    turn(&w, "[" U("q") "]", "one", true, 0);
    turn(&w, "[" U("q") "," A("one") "," U("r") "]", "two", true, 0);
    export_options_init(&o);
    o.format = format;
    cr_assert_eq(read_export(&w, &o, &r, &e), 0, "%s", e.text);
    cr_expect_eq(told_bytes(&w, &r.taken), r.taken.len, "format %d, at pause %zu", (int)format, k);
    buf_done(&r.taken);
    world_close(&w);
    return r.pauses > k;
}

TEST(export, what_a_session_is_told_meanwhile_breaks_no_file)
{
    static const enum export_format formats[] = {EXPORT_VERL, EXPORT_AREAL, EXPORT_MILES,
                                                 EXPORT_PREFIX_TREE, EXPORT_SAFETENSORS};

    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        for (size_t k = 0; more_comes_at(formats[i], k); k++)
            continue;
}

static void give(struct world *w, const char *response_id, const char *info)
{
    struct buf record = {0};
    struct err e = {0};

    cr_assert_eq(session_reward_record(w->s, json(w, info), str_cstr(response_id), 9, &record, &e),
                 0, "%s", e.text);
    apply(w, &record);
}

static void replace_answer(struct world *w)
{
    turn(w, "[" U("q") "]", "one", true, 0);
    turn(w, "[" U("q") "]", "one", true, 0);
    give(w, "r1", "{\"b\":2}");
    give(w, "r2", "{\"c\":3}");
}

/* An export has the branches of its beginning, including the answer that was replaced. */
TEST_WITH(export, a_reward_stays_with_an_answer_that_another_replaces_meanwhile, world)
{
    static const char want[] = "\"turn_rewards\":{\"r0\":{\"a\":1,\"b\":2,\"c\":3}}";
    struct reader r = {.fn = replace_answer};

    turn(f, "[" U("q") "]", "one", true, 0);
    give(f, "r0", "{\"a\":1}");
    cr_assert_eq(read_export(f, &f->o, &r, &f->e), 0, "%s", f->e.text);
    cr_expect_neq(str_find(buf_str(&r.taken), str_cstr(want), 0), SIZE_MAX, "%.*s",
                  (int)r.taken.len, r.taken.p);
    buf_done(&r.taken);
}

static const struct json *trajectories(struct world *w, const struct export_options *o)
{
    struct buf out = {0};
    const struct json *v;

    export_all(w, o, &out);
    buf_add_c(&out, 0);
    v = json_get(json(w, out.p), "trajectories");
    buf_done(&out);
    return v;
}

TEST_WITH(export, one_answer_without_logprobs_makes_them_null, world)
{
    const struct json *t;

    turn(f, "[" U("q") "]", "one", true, 0);
    turn(f, "[" U("q") "," A("one") "," U("r") "]", "two", false, 0);
    t = json_at(trajectories(f, &f->o), 0);
    cr_expect(json_is(json_get(t, "response_logprobs"), JSON_NULL));
    cr_expect(json_is(json_get(t, "response_ids"), JSON_ARRAY));
}

TEST_WITH(export, without_logprobs_no_format_invents_them, world)
{
    static const char *const never[] = {"\"response_logprobs\":[", "response_logprobs.0",
                                        "rollout_log_probs.0",     "\"rollout_log_probs\":[",
                                        "\"logprobs\":[",          "\"logprobs\":{",
                                        "\"rollout_logprobs\":["};

    turn(f, "[" U("q") "]", "one", true, 0);
    turn(f, "[" U("q") "," A("one") "," U("r") "]", "two", false, 0);
    for (int format = 0; format < EXPORT_FORMAT_COUNT; format++) {
        struct export_options o;
        struct buf out = {0};

        export_options_init(&o);
        o.format = (enum export_format)format;
        if (format == EXPORT_AREAL || format == EXPORT_PRIME_RL ||
            format == EXPORT_NEMO_GYM) { /* these formats need logprobs */
            expect_fails_at_once(f, &o, "needs the logprobs");
            continue;
        }
        export_all(f, &o, &out);
        for (size_t i = 0; i < ARRAY_LEN(never); i++)
            cr_expect_eq(str_find(buf_str(&out), str_cstr(never[i]), 0), SIZE_MAX, "format %d: %s",
                         format, never[i]);
        buf_done(&out);
    }
}

/* Checks that a damaged session is an error in every format before the first byte, and that the
 * repaired one is exported. */
static void expect_refused(struct world *w, const char *what)
{
    for (int format = 0; format < EXPORT_FORMAT_COUNT; format++) {
        struct export_options o;
        struct reader r = {.at = SIZE_MAX};
        struct err e = {0};

        export_options_init(&o);
        o.format = (enum export_format)format;
        cr_expect_eq(read_export(w, &o, &r, &e), -1, "format %d: %s", format, what);
        cr_expect_eq(e.kind, ERR_UNASSEMBLABLE);
        cr_expect_eq(r.taken.len, 0, "format %d: %s", format, what);
        buf_done(&r.taken);
    }
}

/* The lengths are right, so only the ids differ. */
TEST_WITH(export, other_ids_than_were_sent_are_an_error, world)
{
    int32_t *ids;

    branches(f);
    for (size_t i = 0; i < f->s->forest.checkpoints.n; i++) {
        struct checkpoint *t = f->s->forest.checkpoints.at[i];
        struct export_options o;

        cr_assert_neq(t->sent, 0);
        if (t->context.n == 0 || t->hidden)
            continue;
        ids = (int32_t *)(void *)(uintptr_t)payload_bytes(t->context.payload);
        ids[0] ^= 1;
        export_options_init(&o);
        o.select = SELECT_ALL_CHECKPOINTS;
        (void)expect_fails(f, &o, "is not what the engine was asked with");
        ids[0] ^= 1;
    }
}

TEST(export, what_breaks_an_invariant_is_an_error)
{
    struct export_options o;
    struct buf out = {0};
    struct checkpoint *t;
    struct world w;

    world_init(&w, "tree");
    branches(&w);
    t = w.s->forest.checkpoints.at[1];
    t->total++;
    expect_refused(&w, "lengths");
    t->total--;
    w.s->forest.calls.at[t->call]->prompt_tokens++;
    expect_refused(&w, "another prompt than was sent");
    w.s->forest.calls.at[t->call]->prompt_tokens--;
    t->trim++;
    expect_refused(&w, "a drop that nobody declared");
    t->trim = t->parent->n + 1;
    t->n_context += t->trim;
    expect_refused(&w, "a drop of more than the answer");
    t->n_context -= t->trim;
    t->trim = 0;
    t->total -= t->n_context;
    w.s->forest.calls.at[t->call]->prompt_tokens -= t->n_context;
    t->n_context = 0;
    expect_refused(&w, "two answers in one run");
    world_close(&w);
    world_init(&w, "tree");
    branches(&w);
    export_options_init(&o);
    export_all(&w, &o, &out);
    cr_expect_gt(out.len, 100);
    buf_done(&out);
    world_close(&w);
}

TEST_WITH(export, routed_experts_cover_all_tokens_or_are_absent, world)
{
    const struct json *t, *shape;
    int64_t rows = 0, n = 0;

    turn(f, "[" U("q") "]", "one", true, 2);
    turn(f, "[" U("q") "," A("one") "," U("r") "]", "two", true, 2);
    t = json_at(trajectories(f, &f->o), 0);
    shape = json_get(t, "routed_experts_shape");
    cr_assert(shape);
    cr_expect_eq(json_to_i64(json_at(shape, 0), &rows), 0);
    n = (int64_t)json_get(t, "prompt_ids")->n + json_get(t, "response_ids")->n;
    cr_expect_eq(rows, n - 1);
    cr_expect(str_eq_c(json_string(json_get(t, "routed_experts_dtype")), "uint8"));
    turn(f, "[" U("q") "," A("one") "," U("r") "," A("two") "," U("s") "]", "three", true, 0);
    t = json_at(trajectories(f, &f->o), 0);
    cr_expect(json_is(json_get(t, "routed_experts"), JSON_NULL));
}

TEST_WITH(export, options_are_read_from_text_and_from_json, world)
{
    cr_expect_eq(
        export_options_json(
            &f->o,
            json(f, "{\"select\":\"longest\",\"train_once\":true,\"max_seq_len\":77,"
                    "\"format\":\"verl\",\"merge\":\"token\",\"metadata\":{\"reward\":1}}"),
            &f->e),
        0);
    cr_expect_eq(f->o.select, SELECT_LONGEST);
    cr_expect(f->o.train_once && f->o.merge_set && f->o.metadata);
    cr_expect_eq(f->o.max_tokens, 77);
    cr_expect_eq(f->o.format, EXPORT_VERL);
    cr_expect_eq(export_option(&f->o, STR("pick"), STR("best"), &f->e), -1);
    cr_expect_str_eq(f->e.param, "pick");
    cr_expect_eq(export_option(&f->o, STR("max_tokens"), STR("-3"), &f->e), -1);
    cr_expect_eq(export_option(&f->o, STR("unknown"), STR("x"), &f->e), 0);
    cr_expect_eq(export_options_json(&f->o, json(f, "{\"max_seq_len\":\"x\"}"), &f->e), -1);
    cr_expect_str_eq(f->e.param, "max_seq_len");
    cr_expect(str_find(str_cstr(f->e.text), STR("max_tokens"), 0) == SIZE_MAX);
}
