/*
 * A small stand-in for worker/text/model, for tests of sessions and exports: ChatML over bytes (ids
 * 0..255, 256 <|im_start|>, 257 <|im_end|>, 258 <|endoftext|>), the same as the chatml-bytes
 * folder of the shared data, and with fake_drift the ten merges of chatml-drift. Include it in one
 * file of a program. A struct model pointer may be anything.
 */
#ifndef RG_TESTS_FAKE_MODEL_H
#define RG_TESTS_FAKE_MODEL_H

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat.h"
#include "worker/text/tokens/tokenizer.h"

enum { FAKE_START = 256, FAKE_END = 257, FAKE_EOT = 258 };

static bool fake_drift;
static uint32_t fake_trim; /* what model_suffix says */
static bool fake_rewrites; /* as if the template rewrote earlier turns */
static const int32_t fake_stops[] = {FAKE_END, FAKE_EOT};
static const int32_t fake_lead[] = {'\n', FAKE_START, 'a', 's', 's', 'i',
                                    's',  't',        'a', 'n', 't', '\n'};
/* The same text with the merges of fake_drift: 's', 't' are one id. */
static const int32_t fake_lead_drift[] = {'\n', FAKE_START, 'a', 's', 's', 'i',
                                          260,  'a',        'n', 't', '\n'};
static const struct model_info fake_info = {.name = "fake",
                                            .vocab_size = 269,
                                            .stop_ids = fake_stops,
                                            .n_stop_ids = 2,
                                            .lead_ids = fake_lead,
                                            .n_lead_ids = 12,
                                            .family = "chatml",
                                            .append_only = true};
static const struct model_info fake_info_drift = {.name = "fake",
                                                  .vocab_size = 269,
                                                  .stop_ids = fake_stops,
                                                  .n_stop_ids = 2,
                                                  .lead_ids = fake_lead_drift,
                                                  .n_lead_ids = 11,
                                                  .family = "chatml",
                                                  .append_only = true};

static void fake_text(struct token_vec *v, struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        *vec_push(v) = (unsigned char)s.p[i];
}

/* JSON as Python's json.dumps spaces it. */
static void fake_json(struct buf *b, const struct json *v)
{
    if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT) {
        buf_add_c(b, v->kind == JSON_ARRAY ? '[' : '{');
        for (uint32_t i = 0; i < v->n; i++) {
            if (i)
                buf_puts(b, ", ");
            if (v->kind == JSON_OBJECT) {
                json_write(b, &v->members[i].key);
                buf_puts(b, ": ");
            }
            fake_json(b, v->kind == JSON_ARRAY ? &v->items[i] : &v->members[i].value);
        }
        buf_add_c(b, v->kind == JSON_ARRAY ? ']' : '}');
    } else {
        json_write(b, v);
    }
}

static void fake_json_text(struct token_vec *v, const struct json *j)
{
    struct buf b = {0};

    fake_json(&b, j);
    fake_text(v, buf_str(&b));
    buf_done(&b);
}

static void fake_call(struct token_vec *v, const struct json *call)
{
    const struct json *f = json_get(call, "function");
    struct str args = json_string(json_get(f, "arguments"));
    struct arena a = {0};
    const struct json *parsed;
    struct err e;

    fake_text(v, STR("\n<tool_call>\n{\"name\": \""));
    fake_text(v, json_string(json_get(f, "name")));
    fake_text(v, STR("\", \"arguments\": "));
    if (args.p && json_parse(&a, args, &parsed, &e) == 0)
        fake_json_text(v, parsed);
    else
        fake_text(v, args);
    fake_text(v, STR("}\n</tool_call>"));
    arena_done(&a);
}

static void fake_message(struct token_vec *v, const struct json *m)
{
    const struct json *content = json_get(m, "content"), *calls = json_get(m, "tool_calls");

    *vec_push(v) = FAKE_START;
    fake_text(v, json_string(json_get(m, "role")));
    fake_text(v, STR("\n"));
    if (json_is(content, JSON_ARRAY))
        for (uint32_t i = 0; i < content->n; i++)
            fake_text(v, json_string(json_get(&content->items[i], "text")));
    else
        fake_text(v, json_string(content));
    for (uint32_t i = 0; json_is(calls, JSON_ARRAY) && i < calls->n; i++)
        fake_call(v, &calls->items[i]);
    *vec_push(v) = FAKE_END;
    fake_text(v, STR("\n"));
}

static void fake_merge(struct token_vec *v, size_t from)
{
    static const int32_t merges[][3] = {
        {'l', 'i', 259}, {'s', 't', 260}, {259, 260, 261}, {'f', 'i', 262}, {'e', 's', 263},
        {262, 'l', 264}, {264, 263, 265}, {'t', 'a', 266}, {'a', 'l', 267}, {'n', 'e', 268}};

    for (size_t k = 0; k < sizeof(merges) / sizeof(*merges) && fake_drift; k++) {
        size_t n = from;

        for (size_t i = from; i < v->n; n++)
            if (i + 1 < v->n && v->at[i] == merges[k][0] && v->at[i + 1] == merges[k][1]) {
                v->at[n] = merges[k][2];
                i += 2;
            } else {
                v->at[n] = v->at[i++];
            }
        v->n = n;
    }
}

static void fake_render(const struct chat *chat, size_t from, bool prompt, struct token_vec *ids)
{
    size_t start = ids->n;

    if (from == 0 && chat->tools && chat->tools->n) {
        *vec_push(ids) = FAKE_START;
        fake_text(ids, STR("system\n# Tools\n"));
        for (uint32_t i = 0; i < chat->tools->n; i++) {
            if (i)
                fake_text(ids, STR("\n"));
            fake_json_text(ids, &chat->tools->items[i]);
        }
        *vec_push(ids) = FAKE_END;
        fake_text(ids, STR("\n"));
    }
    for (size_t i = from; i < chat->messages->n; i++)
        fake_message(ids, &chat->messages->items[i]);
    if (prompt) {
        *vec_push(ids) = FAKE_START;
        fake_text(ids, STR("assistant\n"));
    }
    fake_merge(ids, start);
}

const struct model_info *model_info(const struct model *m)
{
    (void)m;
    return fake_drift ? &fake_info_drift : &fake_info;
}

/* There is no tokenizer behind it; weak, so that programs with one may link both. */
bool model_is_special(const struct model *m, int32_t id)
{
    (void)m;
    return id >= FAKE_START && id <= FAKE_EOT;
}

__attribute__((weak)) void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                                            bool skip_special_tokens, struct buf *out)
{
    (void)t;
    (void)ids;
    (void)n;
    (void)skip_special_tokens;
    (void)out;
}

const struct tokenizer *model_tokenizer(const struct model *m)
{
    (void)m;
    return NULL;
}

int model_prompt(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 struct token_vec *ids, struct err *e)
{
    (void)m;
    (void)s;
    (void)e;
    fake_render(chat, 0, true, ids);
    return 0;
}

int model_canonical(const struct model *m, struct model_scratch *s, const struct chat *chat,
                    struct token_vec *ids, struct err *e)
{
    (void)m;
    (void)s;
    (void)e;
    fake_render(chat, 0, false, ids);
    return 0;
}

/* The ids themselves stand for the text; few of them are a part. */
int model_canonical_text(const struct model *m, struct model_scratch *s, const struct chat *chat,
                         struct buf *text, struct err *e)
{
    struct token_vec ids = {0};

    (void)m;
    (void)s;
    (void)e;
    fake_render(chat, 0, false, &ids);
    buf_add(text, ids.at, ids.n * sizeof(*ids.at));
    vec_done(&ids);
    return 0;
}

int model_canonical_step(struct model_scratch *s, struct str text, size_t *at,
                         struct token_vec *ids, struct err *e)
{
    (void)s;
    (void)e;
    for (int i = 0; i < 7 && *at < text.len; i++, *at += sizeof(*ids->at))
        memcpy(vec_push(ids), text.p + *at, sizeof(*ids->at));
    return *at == text.len;
}

int model_suffix(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 size_t covered, const struct model_tail *tail, struct model_suffix *ret,
                 struct err *e)
{
    (void)m;
    (void)s;
    (void)e;
    *ret = (struct model_suffix){.trim = fake_trim, .rewrites = fake_rewrites};
    fake_text(&ret->ids, tail->added);
    if (tail->last.n <= fake_trim || tail->last.at[tail->last.n - 1 - fake_trim] != FAKE_END)
        *vec_push(&ret->ids) = FAKE_END;
    fake_text(&ret->ids, STR("\n"));
    ret->close = (uint32_t)ret->ids.n;
    fake_render(chat, covered, true, &ret->ids);
    return 0;
}

bool model_ends_at(const struct model *m, struct token_span last, struct str stop, struct arena *a,
                   struct str *ret_after)
{
    size_t from = last.n - MIN_OF(last.n, stop.len);

    (void)m;
    (void)a;
    *ret_after = (struct str){0};
    for (size_t i = 0; i < stop.len && from + i < last.n; i++)
        if (last.at[from + i] != (unsigned char)stop.p[i])
            return false;
    return last.n >= stop.len;
}

bool model_renders_all(const struct model *m)
{
    (void)m;
    return false;
}

bool model_is_slow(const struct model *m)
{
    (void)m;
    return false;
}

void model_scratch_limit(struct model_scratch *s, uint32_t max_ids)
{
    (void)s, (void)max_ids;
}

void model_scratch_audit(struct model_scratch *s, bool audit)
{
    (void)s, (void)audit;
}

#endif
