/*
 * An answer is made in one step: fill_answer() makes the text and encodes it (or takes ids from a
 * script, or from the prompt if an echo has the same ids). clip_ids() ends the ids at the first
 * stop id or at max_tokens. Then each token gets its logprob by a formula of id and position.
 * Everything follows from the request, so a test knows ids and logprobs beforehand, and a repeated
 * call gets the same ones.
 *
 * Echo finds the last closed turn only by the stop ids: like real engines, this one has ids and
 * knows nothing of messages.
 */
#include "worker/engine/builtin/builtin_answer.h"

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "common/os/file.h"
#include "worker/engine/builtin/recorded.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/text/model/model.h"
#include "worker/text/parsers/gbnf_sample.h"
#include "worker/text/parsers/tool_grammar.h"
#include "worker/text/tokens/tokenizer.h"

enum { SCRIPT_BYTES_MAX = 64 << 20, RECORD_BYTES_MAX = 256 << 20 };

enum { RANDOM_MIN = 16, RANDOM_SPAN = 48 };

enum builtin_mode { MODE_ECHO, MODE_SCRIPT, MODE_RANDOM, MODE_RECORDED };

struct builtin {
    unsigned refs; /* holds in addition to the first */
    enum builtin_mode mode;
    uint64_t seed;
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    const int32_t *stop_ids; /* in the arena */
    size_t n_stop_ids;
    int32_t first_stop; /* lowest stop id; INT32_MAX: there are none */
    bool splits;        /* result of splits_lines */
    struct buf script_text;
    const struct json *script; /* non-empty array of mode `script` */
    struct recorded *recorded; /* of mode `recorded`, or NULL */
    struct arena arena;
};

static int item_check(const struct json *item, size_t i, struct err *e)
{
    const struct json *ids = json_get(item, "ids");

    if (json_is(item, JSON_STRING) || json_is(json_get(item, "text"), JSON_STRING))
        return 0;
    for (size_t k = 0; json_is(ids, JSON_ARRAY) && k < ids->n; k++) {
        int64_t id;

        if (json_to_i64(json_at(ids, k), &id) || id < 0 || id > INT32_MAX)
            return err_set(e, ERR_CONFIG, "engine script item %zu: bad id", i);
    }
    if (!json_is(ids, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "engine script item %zu has neither text nor ids", i);
    return 0;
}

static int script_load(struct builtin *b, const char *path, struct err *e)
{
    if (file_read(path, SCRIPT_BYTES_MAX, &b->script_text, e) ||
        json_parse(&b->arena, buf_str(&b->script_text), &b->script, e))
        return -1;
    if (!json_is(b->script, JSON_ARRAY) || b->script->n == 0)
        return err_set(e, ERR_CONFIG, "the engine script is not a list of answers");
    for (size_t i = 0; i < b->script->n; i++) {
        if (item_check(json_at(b->script, i), i, e))
            return -1;
    }
    return 0;
}

static int load_record(struct builtin *b, const char *path, struct err *e)
{
    struct buf bytes = {0};
    int rc = file_read(path, RECORD_BYTES_MAX, &bytes, e);

    if (rc == 0)
        rc = recorded_new(buf_str(&bytes), &b->recorded, e);
    buf_done(&bytes);
    return rc;
}

static int mode_parse(struct builtin *b, const char *mode, struct err *e)
{
    struct str m = str_cstr(mode);

    if (m.len == 0 || str_eq_c(m, "echo"))
        return 0;
    if (str_starts(m, STR("script:"))) {
        b->mode = MODE_SCRIPT;
        return script_load(b, mode + strlen("script:"), e);
    }
    if (str_starts(m, STR("recorded:"))) {
        b->mode = MODE_RECORDED;
        return load_record(b, mode + strlen("recorded:"), e);
    }
    b->mode = MODE_RANDOM;
    if (!str_starts(m, STR("random:")) ||
        str_to_u64(str_sub(m, strlen("random:"), SIZE_MAX), UINT64_MAX, &b->seed))
        return err_set(e, ERR_CONFIG, "the built-in engine has no mode '%s'", mode);
    return 0;
}

int builtin_check(const char *mode, struct err *e)
{
    struct builtin b = {0};
    int rc = mode_parse(&b, mode, e);

    recorded_free(b.recorded);
    buf_done(&b.script_text);
    arena_done(&b.arena);
    return rc;
}

static int32_t *copy_ids(struct arena *a, const int32_t *ids, size_t n)
{
    int32_t *copy = arena_alloc(a, n * sizeof(*copy));

    if (n > 0)
        memcpy(copy, ids, n * sizeof(*copy));
    return copy;
}

static bool encode_all(struct encoder *e, struct str text, struct token_vec *out)
{
    struct err ignored = {0};

    return encoder_encode(e, text, false, out, &ignored) == 0;
}

/* Reports whether the text has the same ids as its two halves encoded separately. */
static bool splits_at(struct encoder *e, struct str text, size_t at)
{
    struct token_vec whole = {0}, parts = {0};
    bool ret = encode_all(e, text, &whole) && encode_all(e, str_sub(text, 0, at), &parts) &&
               encode_all(e, str_sub(text, at, SIZE_MAX), &parts) && whole.n == parts.n &&
               memcmp(whole.at, parts.at, whole.n * sizeof(*whole.at)) == 0;

    vec_done(&whole);
    vec_done(&parts);
    return ret;
}

/* Reports whether the text after a line's end has the same ids as when it is encoded alone, and
 * also the text before spaces at its end. This is tried, because the tokenizer's description does
 * not say it. */
static bool splits_lines(const struct tokenizer *t, struct encoder *e)
{
    static const struct {
        const char *text;
        size_t at;
    } tried[] = {{"user\nA line, 12\n", 5}, {"A line ", 6}, {"A line, 12  ", 10}, {"A line. ", 7}};

    if (!tokenizer_byte_level(t))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(tried); i++)
        if (!splits_at(e, str_cstr(tried[i].text), tried[i].at))
            return false;
    return true;
}

int builtin_new(const char *mode, const struct engine_options *o, struct builtin **ret,
                struct err *e)
{
    struct builtin *b = mem_zalloc(sizeof(*b));

    b->tokenizer = model_tokenizer(o->model);
    b->encoder = encoder_new(b->tokenizer);
    b->splits = splits_lines(b->tokenizer, b->encoder);
    b->n_stop_ids = o->n_stop_ids;
    b->stop_ids = o->n_stop_ids > 0 ? copy_ids(&b->arena, o->stop_ids, o->n_stop_ids) : NULL;
    b->first_stop = INT32_MAX;
    for (size_t i = 0; i < o->n_stop_ids; i++)
        b->first_stop = MIN_OF(b->first_stop, o->stop_ids[i]);
    if (mode_parse(b, mode, e)) {
        builtin_free(b);
        return -1;
    }
    *ret = b;
    return 0;
}

void builtin_hold(struct builtin *b)
{
    b->refs++;
}

void builtin_free(struct builtin *b)
{
    if (b->refs-- > 0)
        return;
    encoder_free(b->encoder);
    recorded_free(b->recorded);
    buf_done(&b->script_text);
    arena_done(&b->arena);
    free(b);
}

static bool ends_turn(const struct builtin *b, int32_t id)
{
    if (id < b->first_stop) /* true for most ids: in vocabularies stop ids come last */
        return false;
    for (size_t i = 0; i < b->n_stop_ids; i++) {
        if (b->stop_ids[i] == id)
            return true;
    }
    return false;
}

static bool is_stop(const struct builtin *b, const struct sampling *s, int32_t id)
{
    if (!s->ignore_eos && ends_turn(b, id))
        return true;
    for (size_t i = 0; s->stop_token_ids && i < s->stop_token_ids->n; i++) {
        int64_t v;

        if (json_to_i64(json_at(s->stop_token_ids, i), &v) == 0 && v == id)
            return true;
    }
    return false;
}

/* Returns the position behind the last id in [first, end) of the prompt that ends a turn; `first`
 * if there is none. */
static size_t behind_turn(const struct builtin *b, struct token_parts prompt, size_t first,
                          size_t end)
{
    size_t at = prompt.n;

    for (size_t k = prompt.n_parts; k-- > 0;) {
        at -= prompt.parts[k].n; /* position of the part's first id */
        for (; end > MAX_OF(at, first); end--)
            if (ends_turn(b, prompt.parts[k].at[end - 1 - at]))
                return end;
    }
    return first;
}

/* Positions of ids in the prompt. */
struct turn_range {
    size_t from, to;
};

/* Finds the last closed turn of the prompt. Examines at most `most` ids from the end. Returns false
 * if these are not all. */
static bool find_last_turn(const struct builtin *b, const struct engine_request *r, size_t most,
                           struct turn_range *ret)
{
    size_t first = r->prompt.n > most ? r->prompt.n - most : 0;
    size_t end = behind_turn(b, r->prompt, first, r->prompt.n);

    ret->to = end > first ? end - 1 : end;
    ret->from = behind_turn(b, r->prompt, first, ret->to);
    return ret->from > first || first == 0;
}

/* Copies the ids of the last closed turn. The caller frees them. */
static void copy_last_turn(const struct builtin *b, const struct engine_request *r,
                           struct token_vec *ret)
{
    struct turn_range turn;

    (void)find_last_turn(b, r, r->prompt.n, &turn);
    vec_reserve(ret, turn.to - turn.from);
    ret->n = turn.to - turn.from;
    token_parts_copy(r->prompt, turn.from, ret->n, ret->at);
}

/* Appends the text of a turn, without its role line. */
static void echo_text(const struct builtin *b, struct token_span turn, struct buf *out)
{
    struct buf whole = {0};
    struct str text;
    size_t line;

    tokenizer_decode(b->tokenizer, turn.at, turn.n, true, &whole);
    text = str_trim(buf_str(&whole));
    line = str_find(text, STR("\n"), 0);
    buf_add_str(out, line == SIZE_MAX ? text : str_sub(text, line + 1, SIZE_MAX));
    buf_done(&whole);
}

/* Reports whether the token's text begins, or ends, with white space. True for a token without
 * text. */
static bool is_spaced(const struct builtin *b, int32_t id, bool at_end)
{
    struct str text = tokenizer_text(b->tokenizer, id);

    return text.len == 0 ||
           str_trim(str_sub(text, at_end ? text.len - 1 : 0, at_end ? text.len : 1)).len == 0;
}

/* Returns how many ids the turn's role line and the ids before it have; 0: the line does not end at
 * the end of a token. */
static size_t role_line(const struct builtin *b, struct token_span turn)
{
    size_t i = 0;

    while (i < turn.n && (tokenizer_is_special(b->tokenizer, turn.at[i]) ||
                          str_trim(tokenizer_text(b->tokenizer, turn.at[i])).len == 0))
        i++;
    for (; i < turn.n; i++) {
        struct str text = tokenizer_text(b->tokenizer, turn.at[i]);
        size_t line = str_find(text, STR("\n"), 0);

        if (line != SIZE_MAX)
            return line + 1 == text.len ? i + 1 : 0;
    }
    return 0;
}

/* Reports whether the token consists only of spaces. */
static bool is_spaces(const struct builtin *b, int32_t id)
{
    struct str text = tokenizer_text(b->tokenizer, id);

    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] != ' ')
            return false;
    return text.len > 0;
}

/* Finds the ids of echo_text in the turn. That needs ordinary text of which nothing must be trimmed
 * except whole tokens of spaces at its end. The ids are those that encoding the text would give,
 * unless the client gave ids itself, or the text spells a picture's token. Returns false if there
 * are none. */
static bool echo_ids(const struct builtin *b, const struct sampling *s, struct token_span turn,
                     struct token_vec *out)
{
    struct token_span ids;
    size_t from;

    if (!b->splits || (s->stop && s->stop->n > 0))
        return false;
    from = role_line(b, turn);
    if (from == 0 || from == turn.n)
        return false;
    ids = (struct token_span){turn.at + from, turn.n - from};
    while (ids.n > 1 && is_spaces(b, ids.at[ids.n - 1]))
        ids.n--;
    if (is_spaced(b, ids.at[0], false) || is_spaced(b, ids.at[ids.n - 1], true))
        return false;
    for (size_t i = tokenizer_plain(b->tokenizer, ids.at, ids.n); i < ids.n; i++) {
        if (tokenizer_is_added(b->tokenizer, ids.at[i]) ||
            !tokenizer_text(b->tokenizer, ids.at[i]).len)
            return false;
    }
    vec_reserve(out, ids.n + 1);
    memcpy(out->at, ids.at, ids.n * sizeof(*ids.at));
    out->n = ids.n;
    return true;
}

/* Repeats the last closed turn: sets *ids and returns true, or appends to *text. */
static bool echo(const struct builtin *b, const struct engine_request *r, struct token_vec *ids,
                 struct buf *text)
{
    struct token_vec copy = {0};
    struct token_span turn;
    bool done;

    copy_last_turn(b, r, &copy);
    turn = (struct token_span){copy.at, copy.n};
    done = echo_ids(b, r->sampling, turn, ids);
    if (!done)
        echo_text(b, turn, text);
    vec_done(&copy);
    return done;
}

static void random_text(const struct builtin *b, const struct engine_request *r, struct buf *out)
{
    uint64_t x = str_hash(r->session_id, b->seed) ^ (r->call * 0x9e3779b97f4a7c15ULL) ^ r->answer;
    size_t n;

    if (r->sampling->has_seed)
        x ^= (uint64_t)r->sampling->seed << 32;
    x = str_hash(str_of((const char *)&x, sizeof(x)), b->seed) | 1;
    n = RANDOM_MIN + x % RANDOM_SPAN;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13; /* xorshift64 */
        x ^= x >> 7;
        x ^= x << 17;
        buf_add_c(out, (char)(' ' + (x >> 33) % 95));
    }
}

/* Cuts text after the earliest stop string, which becomes *ret_stop. */
static bool cut_at_stop(const struct sampling *s, struct buf *text, struct str *ret_stop)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; s->stop && i < s->stop->n; i++) {
        struct str stop = json_string(json_at(s->stop, i));
        size_t at = stop.len > 0 ? str_find(buf_str(text), stop, 0) : SIZE_MAX;

        if (at != SIZE_MAX && at + stop.len < best) {
            best = at + stop.len;
            *ret_stop = stop;
        }
    }
    if (best == SIZE_MAX)
        return false;
    text->len = best;
    return true;
}

static void add_ids(const struct json *ids, struct token_vec *out)
{
    for (size_t i = 0; i < ids->n; i++) {
        int64_t id = 0;

        (void)json_to_i64(json_at(ids, i), &id);
        *vec_push(out) = (int32_t)id;
    }
}

static void add_stop(const struct builtin *b, struct token_vec *ids)
{
    if (b->n_stop_ids > 0)
        *vec_push(ids) = b->stop_ids[0];
}

/* Makes an answer from text: encodes it, applies stop strings, and ends it with the stop id unless
 * the item says "length". */
static void answer_text(const struct builtin *b, const struct engine_request *r, struct buf *text,
                        bool cut, struct builtin_answer *ret)
{
    struct err e = {0};

    if (cut_at_stop(r->sampling, text, &ret->stop_text)) {
        ret->finish = ENGINE_STOP_STRING;
        cut = true;
    }
    if (encoder_encode(b->encoder, buf_str(text), false, &ret->ids, &e))
        vec_clear(&ret->ids);
    if (!cut)
        add_stop(b, &ret->ids);
}

/* Reports whether the request's grammar determines the answer. */
static bool is_forced(const struct engine_request *r)
{
    const struct json *grammar = r->sampling->grammar;

    return grammar && !json_is_true(json_get(grammar, "text_too"));
}

static int forced_text(const struct engine_request *r, struct buf *out, struct err *e)
{
    struct tool_grammar f = {.json = true, .schema = sampling_schema(r->sampling)};
    struct str ebnf = json_string(json_get(r->sampling->grammar, "ebnf"));
    struct buf made = {0};
    int rc = 0;

    if (!ebnf.p) {
        rc = tool_grammar_write(&f, false, &made, e);
        ebnf = buf_str(&made);
    }
    if (rc == 0)
        rc = gbnf_sample(ebnf, out, e);
    buf_done(&made);
    return rc;
}

static const struct json *item_of(const struct builtin *b, const struct engine_request *r)
{
    if (b->mode != MODE_SCRIPT)
        return NULL;
    return json_at(b->script, MIN_OF(r->call + r->answer, b->script->n - 1));
}

static int fill_answer(const struct builtin *b, const struct engine_request *r,
                       struct builtin_answer *ret, struct err *e)
{
    struct buf text = {0};
    const struct json *item = item_of(b, r);
    bool cut = false, done = false;
    int rc = 0;

    if (b->mode != MODE_SCRIPT && is_forced(r))
        rc = forced_text(r, &text, e);
    else if (b->mode == MODE_ECHO)
        done = echo(b, r, &ret->ids, &text);
    else if (b->mode == MODE_RANDOM)
        random_text(b, r, &text);
    if (item) {
        cut = str_eq_c(json_string(json_get(item, "finish")), "length");
        buf_add_str(&text, json_is(item, JSON_STRING) ? json_string(item)
                                                      : json_string(json_get(item, "text")));
        if (cut)
            ret->finish = ENGINE_LENGTH;
    }
    if (item && json_is(json_get(item, "ids"), JSON_ARRAY))
        add_ids(json_get(item, "ids"), &ret->ids);
    else if (done)
        add_stop(b, &ret->ids);
    else
        answer_text(b, r, &text, cut, ret);
    buf_done(&text);
    return rc;
}

/* Ends the ids at the first stop id and at max_tokens, whichever comes first. */
static void clip_ids(const struct builtin *b, const struct engine_request *r,
                     struct builtin_answer *ret)
{
    size_t max = r->sampling->max_tokens > 0 ? (size_t)r->sampling->max_tokens : SIZE_MAX;

    const struct json *asked = r->sampling->stop_token_ids;
    /* no id below this one is a stop id */
    int32_t first = asked && asked->n > 0 ? 0 : b->first_stop;

    for (size_t i = 0; i < ret->ids.n && i < max; i++) {
        if (ret->ids.at[i] >= first && is_stop(b, r->sampling, ret->ids.at[i])) {
            ret->ids.n = i + 1;
            ret->stop_id = ret->ids.at[i];
            ret->finish = ENGINE_STOP;
            ret->stop_text = (struct str){0};
            return;
        }
    }
    if (ret->ids.n > max) {
        ret->ids.n = max;
        ret->finish = ENGINE_LENGTH;
        ret->stop_text = (struct str){0};
    }
}

/* Finds what ended a recorded answer: its last id, or a stop string of the request with which its
 * text ends. */
static void find_end(const struct builtin *b, const struct engine_request *r,
                     const struct recorded_turn *turn, struct builtin_answer *ret)
{
    const struct json *stops = r->sampling->stop;
    struct buf text = {0};

    if (turn->cut) {
        ret->finish = ENGINE_LENGTH;
        return;
    }
    if (turn->ids.n > 0 && is_stop(b, r->sampling, turn->ids.at[turn->ids.n - 1])) {
        ret->stop_id = turn->ids.at[turn->ids.n - 1];
        return;
    }
    if (stops && stops->n > 0)
        tokenizer_decode(b->tokenizer, turn->ids.at, turn->ids.n, false, &text);
    for (size_t i = 0; stops && i < stops->n && !ret->stop_text.p; i++) {
        struct str stop = json_string(json_at(stops, i));

        if (stop.len > 0 && stop.len <= text.len &&
            memcmp(text.p + text.len - stop.len, stop.p, stop.len) == 0) {
            ret->stop_text = stop;
            ret->finish = ENGINE_STOP_STRING;
        }
    }
    buf_done(&text);
}

/* Returns the turn that was recorded for the prompt. NULL with *e: there is none. */
static const struct recorded_turn *find_recorded(const struct builtin *b, struct token_parts prompt,
                                                 struct err *e)
{
    struct token_vec ids = {0};
    struct token_span whole;
    const struct recorded_turn *turn;

    vec_reserve(&ids, prompt.n);
    token_parts_copy(prompt, 0, prompt.n, ids.at);
    whole = (struct token_span){ids.at, prompt.n};
    turn = recorded_next(b->recorded, whole);
    if (!turn)
        recorded_explain(b->recorded, whole, b->tokenizer, e);
    vec_done(&ids);
    return turn;
}

static int answer_recorded(const struct builtin *b, const struct engine_request *r,
                           struct builtin_answer *ret, struct err *e)
{
    const struct recorded_turn *turn = find_recorded(b, r->prompt, e);
    size_t n;

    if (!turn)
        return -1;
    n = turn->ids.n;
    if (r->sampling->max_tokens > 0 && (size_t)r->sampling->max_tokens < n)
        return err_set(e, ERR_ENGINE_REFUSED,
                       "the request leaves the record of session %.*s, turn %u of %u: its answer "
                       "has %zu tokens, and max_tokens allows %lld",
                       (int)MIN_OF(turn->session.len, (size_t)80), turn->session.p, turn->number,
                       turn->n_turns, n, (long long)r->sampling->max_tokens);
    vec_reserve(&ret->ids, n + 1);
    ret->ids.n = n;
    if (n > 0)
        memcpy(ret->ids.at, turn->ids.at, n * sizeof(*turn->ids.at));
    if (turn->logprobs) {
        ret->logprobs = mem_calloc(MAX_OF(n, 1), sizeof(*ret->logprobs));
        if (n > 0)
            memcpy(ret->logprobs, turn->logprobs, n * sizeof(*turn->logprobs));
    }
    ret->basis = turn->basis;
    ret->versions = turn->versions;
    ret->n_versions = turn->n_versions;
    find_end(b, r, turn, ret);
    return 0;
}

int builtin_answer(const struct builtin *b, const struct engine_request *r,
                   struct builtin_answer *ret, struct err *e)
{
    int rc;

    *ret = (struct builtin_answer){.finish = ENGINE_STOP, .stop_id = -1, .basis = BASIS_PROCESSED};
    if (b->mode == MODE_RECORDED)
        return answer_recorded(b, r, ret, e);
    rc = fill_answer(b, r, ret, e);
    clip_ids(b, r, ret);
    ret->logprobs = mem_calloc(MAX_OF(ret->ids.n, 1), sizeof(*ret->logprobs));
    for (size_t j = 0; j < ret->ids.n; j++) {
        uint64_t h = ((uint64_t)ret->ids.at[j] * 7 + j * 13) % 100;

        ret->logprobs[j] = (float)(-(double)h / 100.0);
    }
    return rc;
}

/* --- answers made by helpers --- */

/* Answers of this size take about a millisecond to read and encode. From SEVERAL times as much on,
 * a helper takes several milliseconds. */
enum { LONG_TOKENS = 4096, LONG_BYTES = 16 << 10, SEVERAL = 4 };

bool builtin_is_long(const struct builtin *b, const struct engine_request *r)
{
    const struct json *item = item_of(b, r);
    struct turn_range turn;

    if (!item)
        return b->mode == MODE_ECHO && !is_forced(r) && !find_last_turn(b, r, LONG_TOKENS, &turn);
    return json_text_bytes(item, LONG_BYTES) >= LONG_BYTES;
}

bool builtin_takes_long(const struct builtin *b, const struct engine_request *r)
{
    const struct json *item = item_of(b, r);
    struct turn_range turn;

    if (!item)
        return !find_last_turn(b, r, (size_t)SEVERAL * LONG_TOKENS, &turn);
    return json_text_bytes(item, (size_t)SEVERAL * LONG_BYTES) >= (size_t)SEVERAL * LONG_BYTES;
}

int builtin_answer_beside(const struct builtin *b, const struct engine_request *r,
                          struct builtin_answer *ret, struct err *e)
{
    struct builtin own = {.mode = b->mode,
                          .tokenizer = b->tokenizer,
                          .encoder = encoder_new(b->tokenizer), /* an encoder of its own */
                          .stop_ids = b->stop_ids,
                          .n_stop_ids = b->n_stop_ids,
                          .first_stop = b->first_stop,
                          .splits = b->splits,
                          .script = b->script};
    int rc = builtin_answer(&own, r, ret, e);

    encoder_free(own.encoder);
    return rc;
}

void builtin_answer_done(struct builtin_answer *a)
{
    vec_done(&a->ids);
    free(a->logprobs);
}
