#include "worker/engine/builtin/recorded.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/codec/msgpack_read.h"
#include "worker/text/tokens/tokenizer.h"

/* Turns with the same prompt; the key of the map is the prompt's bytes. */
struct recorded_prompt {
    struct recorded_turn *first, *last, *due; /* due: the turn that recorded_next returns next */
};

struct recorded_line {
    struct str session;
    uint32_t index; /* trajectory_index of the trajectory */
    struct token_span ids;
    /* n_turns of them, including those that an earlier trajectory has, too */
    struct recorded_turn **turns;
    size_t n_turns;
};

struct recorded {
    struct arena arena;
    VEC(struct recorded_line) lines;
    struct map prompts;   /* prompt's bytes -> struct recorded_prompt */
    struct map responses; /* response_id -> struct recorded_turn */
    size_t n_turns;
};

/* Fields of a trajectory during reading. */
struct recorded_fields {
    struct recorded *recorded;
    struct recorded_line line;
    size_t n_prompt, n_response;
    const uint8_t *mask;
    const float *logprobs;       /* NULL: it has none */
    const struct json *versions; /* an array, or NULL */
    struct err *err;
};

static int refuse_field(const struct recorded_fields *f, const char *field, const char *why)
{
    return err_set(f->err, ERR_CONFIG, "session %.*s, trajectory %u: %s %s",
                   (int)MIN_OF(f->line.session.len, (size_t)80), f->line.session.p, f->line.index,
                   field, why);
}

/* --- arrays --- */

static size_t count_items(const struct json *v, size_t size)
{
    return json_is(v, JSON_STRING) ? v->n / size : json_is(v, JSON_ARRAY) ? v->n : 0;
}

static bool is_array(const struct json *v, uint8_t flag)
{
    return json_is(v, JSON_ARRAY) || (json_is(v, JSON_STRING) && (v->flags & flag));
}

/* Copies ids to out, which has space for them. */
static int copy_ids(const struct json *v, int32_t *out)
{
    if (json_is(v, JSON_STRING))
        memcpy(out, v->text, v->n);
    for (size_t i = 0; json_is(v, JSON_ARRAY) && i < v->n; i++) {
        int64_t id;

        if (json_to_i64(json_at(v, i), &id) || id > INT32_MAX || id < 0)
            return -1;
        out[i] = (int32_t)id;
    }
    for (size_t i = 0; i < count_items(v, sizeof(*out)); i++)
        if (out[i] < 0)
            return -1;
    return 0;
}

static int read_ids(struct recorded_fields *f, const struct json *t)
{
    const struct json *prompt = json_get(t, "prompt_ids"), *response = json_get(t, "response_ids");
    int32_t *ids;

    if (!is_array(prompt, MSGPACK_IDS) || !is_array(response, MSGPACK_IDS))
        return refuse_field(f, "prompt_ids and response_ids",
                            "are not there: text alone cannot be answered by tokens");
    f->n_prompt = count_items(prompt, sizeof(*ids));
    f->n_response = count_items(response, sizeof(*ids));
    ids = arena_calloc(&f->recorded->arena, f->n_prompt + f->n_response, sizeof(*ids));
    f->line.ids = (struct token_span){ids, f->n_prompt + f->n_response};
    if (copy_ids(prompt, ids) || copy_ids(response, ids + f->n_prompt))
        return refuse_field(f, "prompt_ids or response_ids", "has what is no token id");
    return 0;
}

static int read_mask(struct recorded_fields *f, const struct json *v)
{
    uint8_t *mask;

    if (!is_array(v, MSGPACK_MASK) || count_items(v, 1) != f->n_response)
        return refuse_field(f, "response_mask", "is not as long as response_ids");
    mask = arena_calloc(&f->recorded->arena, f->n_response, 1);
    if (json_is(v, JSON_STRING))
        memcpy(mask, v->text, v->n);
    for (size_t i = 0; json_is(v, JSON_ARRAY) && i < v->n; i++)
        mask[i] = str_eq_c(json_text(json_at(v, i)), "1");
    f->mask = mask;
    return 0;
}

static int read_logprobs(struct recorded_fields *f, const struct json *v)
{
    float *logprobs;

    if (json_is_null(v))
        return 0;
    if (!is_array(v, MSGPACK_FLOATS) || count_items(v, sizeof(*logprobs)) != f->n_response)
        return refuse_field(f, "response_logprobs", "is not as long as response_ids");
    logprobs = arena_calloc(&f->recorded->arena, f->n_response, sizeof(*logprobs));
    if (json_is(v, JSON_STRING))
        memcpy(logprobs, v->text, v->n);
    for (size_t i = 0; json_is(v, JSON_ARRAY) && i < v->n; i++) {
        double d;

        if (json_to_double(json_at(v, i), &d))
            return refuse_field(f, "response_logprobs", "has what is no number");
        logprobs[i] = (float)d;
    }
    f->logprobs = logprobs;
    return 0;
}

static int read_versions(struct recorded_fields *f, const struct json *v)
{
    if (json_is_null(v))
        return 0;
    if (!json_is(v, JSON_ARRAY) || v->n != f->n_response)
        return refuse_field(f, "response_versions", "is not as long as response_ids");
    f->versions = v;
    return 0;
}

/* --- turns --- */

static bool is_sampled(const struct recorded_fields *f, size_t start, size_t end)
{
    for (size_t i = start; i < end; i++)
        if (f->mask[i] != 1)
            return false;
    return true;
}

/* Adds runs of tokens with the same version; -1 means no version. */
static void add_versions(const struct recorded_fields *f, size_t start, size_t end,
                         struct recorded_turn *turn)
{
    struct arena *a = &f->recorded->arena;
    struct engine_version *spans = arena_calloc(a, end - start, sizeof(*spans));
    size_t n = 0;

    for (size_t i = start; i < end; i++) {
        struct str version = json_text(json_at(f->versions, i));

        if (str_eq_c(version, "-1"))
            version = STR("");
        if (n == 0 || !str_eq(spans[n - 1].version, version))
            spans[n++] = (struct engine_version){.version = arena_str(a, version),
                                                 .start = (uint32_t)(i - start)};
        spans[n - 1].end = (uint32_t)(i - start + 1);
    }
    turn->versions = spans;
    turn->n_versions = n;
}

static enum logprob_basis parse_basis(struct str name)
{
    for (enum logprob_basis b = BASIS_UNKNOWN; b <= BASIS_PROCESSED; b++)
        if (str_eq_c(name, logprob_basis_name(b)))
            return b;
    return BASIS_UNKNOWN;
}

static int read_ids_range(const struct recorded_fields *f, const struct json *v, size_t *start,
                          size_t *end)
{
    int64_t from = -1, to = -1;

    if (json_to_i64(json_get(v, "start"), &from) || json_to_i64(json_get(v, "end"), &to) ||
        from < 0 || to < from || (uint64_t)to > f->n_response)
        return refuse_field(f, "turns", "has a start or an end outside of the response");
    *start = (size_t)from;
    *end = (size_t)to;
    return 0;
}

static void index_turn(struct recorded *r, struct recorded_turn *turn)
{
    struct str key =
        str_of((const char *)turn->prompt.at, turn->prompt.n * sizeof(*turn->prompt.at));
    struct recorded_prompt *p = map_get(&r->prompts, key);

    if (!p) {
        p = ARENA_NEW(&r->arena, struct recorded_prompt);
        p->first = p->due = turn;
        map_set(&r->prompts, key, p);
    } else {
        p->last->next = turn;
    }
    p->last = turn;
    r->n_turns++;
}

/* Fills logprobs and versions if this trajectory has them and no earlier one did: of several
 * trajectories that share a turn, only one may have sampled it (train_once). */
static void fill_turn(const struct recorded_fields *f, size_t start, size_t end,
                      struct recorded_turn *turn)
{
    if (!is_sampled(f, start, end))
        return;
    if (f->logprobs && !turn->logprobs)
        turn->logprobs = f->logprobs + start;
    if (f->versions && end > start && turn->n_versions == 0)
        add_versions(f, start, end, turn);
}

static int read_turn(struct recorded_fields *f, const struct json *v, uint32_t number)
{
    struct recorded *r = f->recorded;
    struct str id = json_string(json_get(v, "response_id"));
    struct recorded_turn *turn = id.len > 0 ? map_get(&r->responses, id) : NULL;
    size_t start = 0, end = 0;

    if (read_ids_range(f, v, &start, &end))
        return -1;
    if (!turn) {
        turn = ARENA_NEW(&r->arena, struct recorded_turn);
        *turn = (struct recorded_turn){
            .session = f->line.session,
            .number = number,
            .n_turns = (uint32_t)f->line.n_turns,
            .prompt = {f->line.ids.at, f->n_prompt + start},
            .ids = {f->line.ids.at + f->n_prompt + start, end - start},
            .basis = parse_basis(json_string(json_get(v, "logprob_basis"))),
            .cut = str_eq_c(json_string(json_get(v, "finish_reason")), "length"),
        };
        index_turn(r, turn);
        if (id.len > 0)
            map_set(&r->responses, arena_str(&r->arena, id), turn);
    }
    fill_turn(f, start, end, turn);
    f->line.turns[number - 1] = turn;
    return 0;
}

static int read_trajectory(struct recorded *r, const struct json *t, struct str session,
                           struct err *e)
{
    struct recorded_fields f = {.recorded = r, .err = e};
    const struct json *turns = json_get(t, "turns"), *images = json_get(t, "images");
    int64_t index = 0;

    f.line.session = arena_str(&r->arena, session);
    if (json_to_i64(json_get(t, "trajectory_index"), &index) == 0)
        f.line.index = (uint32_t)index;
    if (json_is(images, JSON_ARRAY) && images->n > 0)
        return refuse_field(&f, "images",
                            "are shown: a record with pictures cannot be answered from");
    if (!json_is(turns, JSON_ARRAY))
        return refuse_field(&f, "turns", "is not there: export with format json or msgpack");
    if (read_ids(&f, t) || read_mask(&f, json_get(t, "response_mask")) ||
        read_logprobs(&f, json_get(t, "response_logprobs")) ||
        read_versions(&f, json_get(t, "response_versions")))
        return -1;
    f.line.n_turns = turns->n;
    f.line.turns = arena_calloc(&r->arena, turns->n, sizeof(*f.line.turns));
    for (uint32_t i = 0; i < turns->n; i++)
        if (read_turn(&f, json_at(turns, i), i + 1))
            return -1;
    *vec_push(&r->lines) = f.line;
    return 0;
}

/* --- files --- */

/* Reads an export, or a trajectory that names its session. */
static int read_document(struct recorded *r, const struct json *v, struct err *e)
{
    const struct json *all = json_get(v, "trajectories");
    struct str session = json_string(json_get(v, "session_id"));

    if (!session.p)
        return err_set(e, ERR_CONFIG, "it holds what is no export: session_id is missing");
    if (!all)
        return read_trajectory(r, v, session, e);
    if (!json_is(all, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "trajectories is no list");
    for (size_t i = 0; i < all->n; i++)
        if (read_trajectory(r, json_at(all, i), session, e))
            return -1;
    return 0;
}

/* Removes the next document from the bytes: a line of JSON, everything if it is one document of
 * several lines, or a value of msgpack. */
static int cut_document(struct arena *a, struct str *bytes, const struct json **ret, struct err *e)
{
    size_t line;

    if (bytes->p[0] != '{')
        return msgpack_read(a, bytes, ret, e);
    line = MIN_OF(str_find(*bytes, STR("\n"), 0), bytes->len);
    if (json_parse(a, str_sub(*bytes, 0, line), ret, e) == 0) {
        *bytes = str_sub(*bytes, line, SIZE_MAX);
        return 0;
    }
    if (line == bytes->len)
        return -1;
    *e = (struct err){0};
    if (json_parse(a, *bytes, ret, e))
        return -1;
    *bytes = (struct str){0};
    return 0;
}

static bool is_gap(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static int read_all(struct recorded *r, struct str bytes, struct err *e)
{
    struct arena scratch = {0};
    int rc = 0;

    while (rc == 0) {
        const struct json *v = NULL;

        while (bytes.len > 0 && is_gap(bytes.p[0]))
            bytes = str_sub(bytes, 1, SIZE_MAX);
        if (bytes.len == 0)
            break;
        arena_reset(&scratch);
        rc = cut_document(&scratch, &bytes, &v, e);
        if (rc == 0)
            rc = read_document(r, v, e);
    }
    arena_done(&scratch);
    if (rc == 0 && r->n_turns == 0)
        rc = err_set(e, ERR_CONFIG, "it holds no answer");
    return rc;
}

int recorded_new(struct str bytes, struct recorded **ret, struct err *e)
{
    struct recorded *r = mem_zalloc(sizeof(*r));
    struct err why = {0};

    if (read_all(r, bytes, &why)) {
        recorded_free(r);
        return err_set(e, ERR_CONFIG, "the record cannot be read: %s", why.text);
    }
    *ret = r;
    return 0;
}

void recorded_free(struct recorded *r)
{
    if (!r)
        return;
    map_done(&r->prompts);
    map_done(&r->responses);
    vec_done(&r->lines);
    arena_done(&r->arena);
    free(r);
}

/* --- answers --- */

const struct recorded_turn *recorded_next(struct recorded *r, struct token_span prompt)
{
    struct recorded_prompt *p =
        map_get(&r->prompts, str_of((const char *)prompt.at, prompt.n * sizeof(*prompt.at)));
    const struct recorded_turn *turn;

    if (!p)
        return NULL;
    turn = p->due;
    p->due = turn->next ? turn->next : p->first;
    return turn;
}

static size_t count_common(struct token_span a, struct token_span b)
{
    size_t n = MIN_OF(a.n, b.n), i = 0;

    while (i < n && a.at[i] == b.at[i])
        i++;
    return i;
}

/* Returns the trajectory that has the longest beginning in common with the prompt; *at: its
 * length. */
static const struct recorded_line *find_nearest(const struct recorded *r, struct token_span prompt,
                                                size_t *at)
{
    const struct recorded_line *best = &r->lines.at[0];

    *at = count_common(best->ids, prompt);
    for (size_t i = 1; i < r->lines.n; i++) {
        size_t n = count_common(r->lines.at[i].ids, prompt);

        if (n > *at) {
            *at = n;
            best = &r->lines.at[i];
        }
    }
    return best;
}

/* Returns the first turn whose prompt is longer than `at`, so that it cannot be reached; else
 * NULL. */
static const struct recorded_turn *find_missed(const struct recorded_line *line, size_t at)
{
    for (size_t i = 0; i < line->n_turns; i++)
        if (line->turns[i]->prompt.n > at)
            return line->turns[i];
    return NULL;
}

/* Appends the ids from `at` on as a short quoted text, or that there are none. */
static void quote_ids(struct buf *out, const struct tokenizer *t, struct token_span ids, size_t at)
{
    enum { SHOWN_IDS = 8, SHOWN_BYTES = 60 };
    struct buf text = {0};

    if (at >= ids.n) {
        buf_puts(out, "its end");
        return;
    }
    tokenizer_decode(t, ids.at + at, MIN_OF(ids.n - at, (size_t)SHOWN_IDS), false, &text);
    buf_printf(out, "id %d, ", ids.at[at]);
    json_write_string(out, str_sub(buf_str(&text), 0, utf8_cut(buf_str(&text), SHOWN_BYTES)));
    buf_done(&text);
}

void recorded_explain(const struct recorded *r, struct token_span prompt, const struct tokenizer *t,
                      struct err *e)
{
    size_t at;
    const struct recorded_line *line = find_nearest(r, prompt, &at);
    const struct recorded_turn *missed = find_missed(line, at);
    struct buf record = {0}, given = {0};

    quote_ids(&record, t, line->ids, at);
    quote_ids(&given, t, prompt, at);
    (void)err_set(e, ERR_ENGINE_REFUSED,
                  "the prompt leaves the record of session %.*s, trajectory %u, %s turn %u of %zu: "
                  "at token %zu the record has %.*s, the prompt %.*s",
                  (int)MIN_OF(line->session.len, (size_t)80), line->session.p, line->index,
                  missed ? "before" : "after", missed ? missed->number : (uint32_t)line->n_turns,
                  line->n_turns, at, (int)record.len, record.p, (int)given.len, given.p);
    buf_done(&record);
    buf_done(&given);
}
