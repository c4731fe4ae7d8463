/*
 * session_player: plays scenarios (one JSON object a line on stdin, the format of the golden
 * files) against the session layer itself, no HTTP and no engine, and prints for each one line of
 * JSON: calls, state, exports. Options per scenario: "exports": {name: {option: value}}, "steps":
 * the same after every event, "replay": true (everything once more from its records, whose exports
 * must be the same), "evict": true (the session is out of memory whenever it is idle, and the bulk
 * of its calls whenever none is running on it), "drift": true (the tokenizer with merges). Whoever
 * judges is outside: run_model.py.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/codec/json.h"
#include "tests/model/fake_model.h"
#include "worker/export/build/export.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

enum { CALLS_MAX = 4096 };

struct player {
    struct session_store *store, *again; /* again: built from records only */
    struct session *s;
    struct arena arena;
    struct session_plan *plans[CALLS_MAX];
    int status[CALLS_MAX];
    struct token_vec prompts[CALLS_MAX];
    uint32_t max_tokens[CALLS_MAX];
    bool exhausted[CALLS_MAX], asked[CALLS_MAX];
    enum session_cause cause[CALLS_MAX];
    char texts[CALLS_MAX][200];
    uint64_t now;
    bool replay, evict;
    struct str id;
    VEC(struct str) records; /* all that was applied */
};

/* What a ceiling of next to nothing does: an idle session leaves memory at once, and comes back
 * from its records when it is needed. */
static void evict(struct player *p)
{
    if (p->evict)
        (void)session_evict(p->store, 0, SIZE_MAX);
}

/* A session_source. */
static int read_back(void *ctx, struct str id, const uint32_t *records, size_t n,
                     const struct session_reader *to, struct err *e)
{
    const struct player *p = ctx;

    (void)id;
    for (size_t i = 0; i < n; i++) {
        if (records[i] >= p->records.n)
            return err_set(e, ERR_IO, "no such record");
        if (to->each(to->ctx, i, p->records.at[records[i]], e) != 0)
            return -1;
    }
    return 0;
}

static void restore(struct player *p)
{
    bool ended;
    struct session *s = session_find_any(p->store, p->id, &ended);
    struct err e = {0};

    if (!s || session_resident(s))
        return;
    session_load_begin(s);
    for (size_t i = 0; i < p->records.n; i++)
        if (session_apply(p->store, p->records.at[i], &e) != 0)
            fprintf(stderr, "reading back: %s\n", e.text);
    if (session_load_end(s, true, p->now) != 0)
        fprintf(stderr, "the session did not come back\n");
}

static void apply(struct player *p, struct buf *record)
{
    struct err e = {0};

    if (session_apply(p->store, buf_str(record), &e) != 0)
        fprintf(stderr, "apply: %s\n", e.text);
    *vec_push(&p->records) = arena_str(&p->arena, buf_str(record));
    if (p->replay && session_apply(p->again, buf_str(record), &e) != 0)
        fprintf(stderr, "replay: %s\n", e.text);
    buf_clear(record);
}

static int64_t number(const struct json *v, int64_t otherwise)
{
    int64_t n;

    return json_to_i64(v, &n) == 0 ? n : otherwise;
}

static void fail(struct player *p, int64_t call, const struct err *e)
{
    p->status[call] = err_status(e);
    snprintf(p->texts[call], sizeof(p->texts[call]), "%.190s", e->text);
}

static int64_t max_tokens_of(struct player *p, const struct json *sampling)
{
    int64_t n = number(json_get(sampling, "max_tokens"), 0);

    return n ? n : number(json_get(session_sampling(p->s), "max_tokens"), 0);
}

/* A count: nothing may come of it, and nothing may refuse it. */
static void play_count(struct player *p, const struct json *ev)
{
    struct chat chat = {.messages = json_get(ev, "messages"),
                        .tools = json_get(ev, "tools"),
                        .kwargs = json_get(ev, "kwargs")};
    struct session_call_input in = {.chat = &chat, .now_ms = p->now, .look = true};
    struct session_plan *plan;
    struct err e = {0};

    if (!p->s)
        return;
    if (session_prepare(p->s, NULL, &p->arena, &in, &plan, &e) != 0)
        fprintf(stderr, "a count was refused: %s\n", e.text);
    else
        session_release_unused(p->store, plan);
}

static void commit_answers(struct player *p, int64_t call, struct session_answer *a, size_t n)
{
    struct buf record = {0};
    struct err e = {0};

    while (session_bulk_record(p->plans[call], a, n, 100, p->now, &record))
        apply(p, &record);
    if (session_commit_record(p->plans[call], a, n, p->now, &record, &e) == 0) {
        p->status[call] = 200;
        apply(p, &record);
    } else {
        fail(p, call, &e);
        session_release(p->store, p->plans[call]);
    }
    p->plans[call] = NULL;
    buf_done(&record);
}

static void play_chat(struct player *p, const struct json *ev, int64_t call)
{
    struct chat chat = {.messages = json_get(ev, "messages"),
                        .tools = json_get(ev, "tools"),
                        .kwargs = json_get(ev, "kwargs")};
    struct session_call_input in = {.chat = &chat, .now_ms = p->now, .temperature = 1};
    struct token_parts prompt;
    struct buf record = {0};
    struct err e = {0};

    in.context_length = (uint32_t)number(json_get(ev, "context_length"), 0);
    in.body_hash[0] = (uint64_t)call + 1;
    in.label = json_string(json_get(ev, "label"));
    if (!p->s) {
        p->status[call] = 410;
        return;
    }
    in.max_tokens = max_tokens_of(p, json_get(ev, "sampling"));
    if (session_prepare(p->s, NULL, &p->arena, &in, &p->plans[call], &e) != 0) {
        fail(p, call, &e);
        return;
    }
    if (p->plans[call]->drops) {
        session_drop_record(p->plans[call], p->now, &record);
        apply(p, &record);
        buf_done(&record);
    }
    prompt = p->plans[call]->prompt;
    vec_reserve(&p->prompts[call], prompt.n);
    token_parts_copy(prompt, 0, prompt.n, p->prompts[call].at);
    p->prompts[call].n = prompt.n;
    p->max_tokens[call] = p->plans[call]->max_tokens;
    p->exhausted[call] = p->plans[call]->exhausted;
    p->cause[call] = p->plans[call]->cause;
    p->asked[call] = !p->exhausted[call];
    if (p->exhausted[call]) {
        struct session_answer none = {.finish_reason = STR_LIT("length")};

        commit_answers(p, call, &none, 1);
    }
}

static void read_ids(const struct json *ev, struct token_vec *ids)
{
    const struct json *list = json_get(ev, "ids");
    struct str text = json_string(json_get(ev, "text"));

    static const struct {
        struct str text;
        int32_t id;
    } specials[] = {{STR_LIT("<|im_start|>"), FAKE_START},
                    {STR_LIT("<|im_end|>"), FAKE_END},
                    {STR_LIT("<|endoftext|>"), FAKE_EOT}};

    for (uint32_t i = 0; list && i < list->n; i++)
        *vec_push(ids) = (int32_t)number(&list->items[i], 0);
    for (size_t at = 0; !list && at < text.len;) {
        size_t k = 0;

        while (k < 3 && !str_starts(str_sub(text, at, SIZE_MAX), specials[k].text))
            k++;
        *vec_push(ids) = k < 3 ? specials[k].id : (unsigned char)text.p[at];
        at += k < 3 ? specials[k].text.len : 1;
    }
}

static struct str text_of(struct player *p, const struct token_vec *ids)
{
    static const char *const merged[] = {"li",  "st",    "list", "fi", "es",
                                         "fil", "files", "ta",   "al", "ne"};
    struct buf b = {0};
    struct str s;

    for (size_t i = 0; i < ids->n; i++)
        if (ids->at[i] < 256)
            buf_add_c(&b, (char)ids->at[i]);
        else if (ids->at[i] >= 259 && ids->at[i] < 269)
            buf_puts(&b, merged[ids->at[i] - 259]);
    s = arena_str(&p->arena, buf_str(&b));
    buf_done(&b);
    return s;
}

static size_t versions_of(const struct json *ev, size_t n, struct session_version v[2])
{
    const struct json *given = json_get(ev, "versions");
    struct str lo = json_text(json_get(given, "min_global_steps"));
    struct str hi = json_text(json_get(given, "max_global_steps"));
    uint32_t k = n / 2 > 1 ? (uint32_t)n / 2 : 1;

    if (!given)
        return 0;
    if (str_eq(lo, hi)) {
        v[0] = (struct session_version){hi, 0, (uint32_t)n};
        return 1;
    }
    v[0] = (struct session_version){lo, 0, k};
    v[1] = (struct session_version){hi, k, (uint32_t)n};
    return n > k ? 2 : 1;
}

static const struct json *message_of(struct player *p, struct str text)
{
    struct json *m = ARENA_NEW(&p->arena, struct json);

    m->kind = JSON_OBJECT;
    m->n = 2;
    m->members = arena_calloc(&p->arena, 2, sizeof(*m->members));
    m->members[0].key = json_make_string(STR("role"));
    m->members[0].value = json_make_string(STR("assistant"));
    m->members[1].key = json_make_string(STR("content"));
    m->members[1].value = json_make_string(text);
    return m;
}

/* One answer; everything lies in the player's arena. */
static struct session_answer answer_of(struct player *p, const struct json *ev, struct str id)
{
    struct session_version *versions = arena_calloc(&p->arena, 2, sizeof(*versions));
    struct session_answer a = {.response_id = id, .versions = versions};
    struct token_vec ids = {0};
    float *lp;
    int32_t *at;

    read_ids(ev, &ids);
    at = arena_alloc(&p->arena, (ids.n + 1) * sizeof(*at));
    lp = arena_alloc(&p->arena, (ids.n + 1) * sizeof(*lp));
    for (size_t j = 0; j < ids.n; j++) {
        at[j] = ids.at[j];
        lp[j] = (float)(-(double)(((size_t)ids.at[j] * 7 + j * 13) % 100) / 100);
    }
    a.ids = (struct token_span){at, ids.n};
    a.logprobs = json_is_true(json_get(ev, "no_logprobs")) ? NULL : lp;
    a.n_versions = versions_of(ev, ids.n, versions);
    a.cut = !ids.n || ids.at[ids.n - 1] != FAKE_END;
    a.finish_reason = json_string(json_get(ev, "finish"));
    a.message = message_of(p, text_of(p, &ids));
    vec_done(&ids);
    return a;
}

/* The engine's answer, and further ones of the same call in "more". */
static void play_engine(struct player *p, const struct json *ev, int64_t call)
{
    const struct json *more = json_get(ev, "more");
    uint32_t n = 1 + (more ? more->n : 0);
    struct session_answer *a = arena_calloc(&p->arena, n, sizeof(*a));

    if (!p->plans[call])
        return;
    a[0] = answer_of(p, ev, arena_printf(&p->arena, "r%lld", (long long)call));
    for (uint32_t i = 1; i < n; i++)
        a[i] = answer_of(p, &more->items[i - 1],
                         arena_printf(&p->arena, "r%lld.%u", (long long)call, i));
    commit_answers(p, call, a, n);
}

static void play_end(struct player *p, const struct json *ev)
{
    struct str how = json_string(json_get(ev, "how"));
    enum session_end end = str_eq_c(how, "delete")     ? SESSION_END_DELETE
                           : str_eq_c(how, "finalize") ? SESSION_END_FINALIZE
                           : str_eq_c(how, "abort")    ? SESSION_END_ABORT
                           : str_eq_c(how, "expire")   ? SESSION_END_EXPIRE
                                                       : SESSION_END_COMPLETE;
    struct buf record = {0};
    struct err e = {0};
    bool ended;
    struct session *s =
        end == SESSION_END_DELETE ? session_find_any(p->store, p->id, &ended) : p->s;

    /* What was finalized can be deleted, and nothing else. */
    if (s && session_end_record(s, end, NULL, p->now, &record, &e) == 0)
        apply(p, &record);
    p->s = session_find(p->store, p->id, &ended);
    buf_done(&record);
}

static void play_reward(struct player *p, const struct json *ev)
{
    struct buf record = {0};
    struct err e = {0};

    if (p->s &&
        session_reward_record(p->s, json_get(ev, "reward_info"),
                              json_string(json_get(ev, "response_id")), p->now, &record, &e) == 0)
        apply(p, &record);
    buf_done(&record);
}

static void play_event(struct player *p, const struct json *ev)
{
    struct str op = json_string(json_get(ev, "op"));
    int64_t call = number(json_get(ev, "call"), 0);

    CHECK(call >= 0 && call < CALLS_MAX);
    p->now += 1000;
    restore(p);
    if (str_eq_c(op, "chat")) {
        play_chat(p, ev, call);
    } else if (str_eq_c(op, "count")) {
        play_count(p, ev);
    } else if (str_eq_c(op, "engine")) {
        play_engine(p, ev, call);
    } else if (str_eq_c(op, "engine_error")) {
        if (p->plans[call]) {
            p->status[call] = 500;
            session_release(p->store, p->plans[call]);
            p->plans[call] = NULL;
        }
    } else if (str_eq_c(op, "reward_info")) {
        play_reward(p, ev);
    } else if (str_eq_c(op, "end")) {
        play_end(p, ev);
    }
    evict(p);
}

/* --- what came out --- */

static void write_calls(struct player *p, struct json_out *o)
{
    json_out_key(o, "calls");
    json_out_obj(o);
    for (int i = 0; i < CALLS_MAX; i++) {
        if (!p->status[i] && !p->plans[i] && !p->asked[i])
            continue;
        json_out_key_str(o, arena_printf(&p->arena, "%d", i));
        json_out_obj(o);
        json_out_key(o, "status");
        json_out_i64(o, p->status[i]);
        json_out_key(o, "text");
        json_out_cstr(o, p->texts[i]);
        json_out_key(o, "asked");
        json_out_bool(o, p->asked[i]);
        json_out_key(o, "exhausted");
        json_out_bool(o, p->exhausted[i]);
        json_out_key(o, "max_tokens");
        json_out_i64(o, p->max_tokens[i]);
        json_out_key(o, "cause");
        json_out_cstr(o, session_cause_name(p->cause[i]));
        json_out_key(o, "prompt");
        json_out_arr(o);
        for (size_t k = 0; k < p->prompts[i].n; k++)
            json_out_i64(o, p->prompts[i].at[k]);
        json_out_end_arr(o);
        json_out_end_obj(o);
    }
    json_out_end_obj(o);
}

/* At its pauses others may need memory. */
struct evicting_out {
    struct export_out out;
    struct session_store *store; /* NULL: nothing is evicted */
};

static int on_pause(struct export_out *o, struct err *e)
{
    struct session_store *store = CONTAINER_OF(o, struct evicting_out, out)->store;

    (void)e;
    if (store)
        (void)session_evict(store, 0, SIZE_MAX);
    return 0;
}

static void write_export(const struct player *p, struct session_store *st,
                         const struct json *options, struct buf *out)
{
    static char some_model;
    struct export_options eo;
    struct export *x;
    struct evicting_out to = {{.bytes = out, .flow = on_pause}, p->evict ? st : NULL};
    struct err e = {0};
    bool ended;
    struct session *s = session_find_any(st, p->id, &ended);

    export_options_init(&eo);
    if (!s) {
        buf_puts(out, "null");
        return;
    }
    if (export_options_json(&eo, options, &e) != 0 ||
        export_new(s, (const struct model *)(const void *)&some_model, NULL, &eo, &x, &e) != 0) {
        json_write_string(out, str_cstr(e.text));
        return;
    }
    if (export_write(x, &to.out, &e))
        json_write_string(out, str_cstr(e.text));
    export_free(x);
}

static void write_exports(struct player *p, const struct json *list, struct json_out *o)
{
    struct buf one = {0}, two = {0};

    json_out_key(o, "exports");
    json_out_obj(o);
    for (uint32_t i = 0; list && i < list->n; i++) {
        buf_clear(&one);
        buf_clear(&two);
        write_export(p, p->store, &list->members[i].value, &one);
        json_out_key_str(o, json_string(&list->members[i].key));
        json_out_raw(o, buf_str(&one));
        if (!p->replay)
            continue;
        write_export(p, p->again, &list->members[i].value, &two);
        if (!str_eq(buf_str(&one), buf_str(&two)))
            fprintf(stderr, "the export after replay differs\n");
    }
    json_out_end_obj(o);
    buf_done(&one);
    buf_done(&two);
}

static void write_state(struct player *p, struct json_out *o)
{
    struct buf one = {0};
    struct err e = {0};
    bool ended;
    struct session *s = session_find_any(p->store, p->id, &ended);

    json_out_key(o, "state");
    if (s && session_write_state(s, true, &one, &e) != 0)
        fprintf(stderr, "state: %s\n", e.text);
    json_out_raw(o, s ? buf_str(&one) : STR("null"));
    buf_done(&one);
}

/* After every event: what is there, and what an export would hold. */
static void write_step(struct player *p, const struct json *exports, struct json_out *o)
{
    if (!exports)
        return;
    restore(p);
    json_out_obj(o);
    write_state(p, o);
    write_exports(p, exports, o);
    json_out_end_obj(o);
}

static void play(struct player *p, const struct json *sc, struct buf *out)
{
    const struct json *events = json_get(sc, "events");
    struct json_out o = json_out_to(out);
    struct buf record = {0};
    struct err e = {0};
    bool ended;

    p->id = STR("w0-0123456789abcdef0123456789abcdef");
    p->replay = json_is_true(json_get(sc, "replay"));
    p->evict = json_is_true(json_get(sc, "evict"));
    session_store_evicts(p->store, p->evict);
    if (p->evict)
        session_store_source(p->store, read_back, p);
    fake_drift = json_is_true(json_get(sc, "drift"));
    if (session_create_record(p->store, p->id, json_get(sc, "session"), p->now, &record, &e) != 0) {
        fprintf(stderr, "create: %s\n", e.text);
        buf_puts(out, "{}\n");
        return;
    }
    apply(p, &record);
    buf_done(&record);
    p->s = session_find(p->store, p->id, &ended);
    json_out_obj(&o);
    json_out_key(&o, "steps");
    json_out_arr(&o);
    for (uint32_t i = 0; i < events->n; i++) {
        play_event(p, &events->items[i]);
        write_step(p, json_get(sc, "steps"), &o);
    }
    json_out_end_arr(&o);
    restore(p);
    write_calls(p, &o);
    write_state(p, &o);
    write_exports(p, json_get(sc, "exports"), &o);
    json_out_end_obj(&o);
    buf_add_c(out, '\n');
}

int main(void)
{
    struct session_defaults d;
    struct buf out = {0};
    struct arena a = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    session_defaults_init(&d);
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct player *p = mem_zalloc(sizeof(*p));
        const struct json *sc;
        struct err e = {0};

        if (json_parse(&a, str_of(line, (size_t)n), &sc, &e) != 0) {
            fprintf(stderr, "scenario: %s\n", e.text);
            return 1;
        }
        p->store = session_store_new(NULL, &d);
        p->again = session_store_new(NULL, &d);
        play(p, sc, &out);
        fwrite(out.p, 1, out.len, stdout);
        fflush(stdout);
        buf_clear(&out);
        for (int i = 0; i < CALLS_MAX; i++) {
            session_release(p->store, p->plans[i]);
            vec_done(&p->prompts[i]);
        }
        session_store_free(p->store);
        session_store_free(p->again);
        vec_done(&p->records);
        arena_done(&p->arena);
        arena_reset(&a);
        free(p);
    }
    buf_done(&out);
    arena_done(&a);
    free(line);
    return 0;
}
