/* Renderings of stand-ins that occur again (standin_memo.h): a few entries, of which the oldest is
 * replaced first. The key is the whole input, compared byte by byte. */

#include "worker/text/model/standin_memo.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/text/model/model_internal.h"
#include "worker/text/model/standin.h"

enum {
    PLACES = 4,
    /* limits for a chat that is remembered: number of template variables, bytes of each text */
    VARIABLES_MAX = 8,
    VARIABLE_BYTES = 64
};

struct standin_memo {
    bool tells_time;  /* the template may read the time */
    struct buf asked; /* key of the last search; empty: it cannot be remembered */
    unsigned next;    /* index of the entry that is overwritten next */

    struct {
        struct buf key, text;
        size_t prompt_ends;
    } places[PLACES];
};

struct standin_memo *standin_memo_new(const struct model_scratch *s)
{
    static const char *const clock = "strftime_now";
    struct standin_memo *memo = mem_zalloc(sizeof(*memo));
    const struct model *m = s->model;

    memo->tells_time = template_mentions(m->template_default, clock) ||
                       (m->template_tools && template_mentions(m->template_tools, clock));
    return memo;
}

void standin_memo_free(struct standin_memo *memo)
{
    if (!memo)
        return;
    buf_done(&memo->asked);
    for (size_t i = 0; i < PLACES; i++) {
        buf_done(&memo->places[i].key);
        buf_done(&memo->places[i].text);
    }
    free(memo);
}

static bool is_short_value(const struct json *v)
{
    return v->kind != JSON_ARRAY && v->kind != JSON_OBJECT &&
           (v->kind != JSON_STRING || v->n <= VARIABLE_BYTES);
}

/* Reports whether there are few template variables and none is long. */
static bool few_variables(const struct json *kwargs)
{
    if (!kwargs || kwargs->kind != JSON_OBJECT)
        return !kwargs;
    for (uint32_t i = 0; i < kwargs->n; i++)
        if (!is_short_value(&kwargs->members[i].key) || !is_short_value(&kwargs->members[i].value))
            return false;
    return kwargs->n <= VARIABLES_MAX;
}

/* Reports whether the result can be remembered: it has no real message that is long or always
 * new. */
static bool is_memorable(const struct standin_in *in)
{
    return !in->history && !in->added.len && !in->real_tools && !in->real_system && !in->earlier &&
           !json_get(in->last, "tool_calls") && few_variables(in->kwargs);
}

/* Appends the length of a text, then the text, so that different lists of texts give different
 * keys. */
static void add_length_and_text(struct buf *out, struct str text)
{
    uint32_t n = (uint32_t)text.len;

    buf_add(out, &n, sizeof(n));
    buf_add_str(out, text);
}

/* Appends a value: its kind, then a text, or a count and the members, or its JSON and a 0. */
static void add_json_value(struct buf *out, const struct json *v)
{
    buf_add_c(out, (char)v->kind);
    switch ((enum json_kind)v->kind) {
    case JSON_STRING:
        add_length_and_text(out, json_text(v));
        break;
    case JSON_ARRAY:
        buf_add(out, &v->n, sizeof(v->n));
        for (uint32_t i = 0; i < v->n; i++)
            add_json_value(out, &v->items[i]);
        break;
    case JSON_OBJECT:
        buf_add(out, &v->n, sizeof(v->n));
        for (uint32_t i = 0; i < v->n; i++) {
            add_length_and_text(out, json_text(&v->members[i].key));
            add_json_value(out, &v->members[i].value);
        }
        break;
    default:
        json_write(out, v);
        buf_add_c(out, '\0');
    }
}

bool standin_memo_find(struct model_scratch *s, const struct standin_in *in,
                       const struct rendering *r, size_t *prompt_ends)
{
    struct standin_memo *memo = s->memo;
    struct json messages = {
        .kind = JSON_ARRAY, .n = r->n, {.items = (void *)(uintptr_t)r->messages}};
    int64_t seconds = memo && memo->tells_time ? (int64_t)r->seconds : 0;

    if (!memo)
        return false;
    buf_clear(&memo->asked);
    if (!is_memorable(in))
        return false;
    buf_add_c(&memo->asked, r->tools ? 't' : ' ');
    buf_add(&memo->asked, &seconds, sizeof(seconds));
    add_json_value(&memo->asked, &messages);
    if (r->kwargs)
        add_json_value(&memo->asked, r->kwargs);
    for (size_t i = 0; i < PLACES; i++) {
        if (!str_eq(buf_str(&memo->places[i].key), buf_str(&memo->asked)))
            continue;
        buf_set(&s->a, buf_str(&memo->places[i].text));
        *prompt_ends = memo->places[i].prompt_ends;
        return true;
    }
    return false;
}

void standin_memo_keep(struct model_scratch *s, size_t prompt_ends)
{
    struct standin_memo *memo = s->memo;
    unsigned at;

    if (!memo || memo->asked.len == 0)
        return;
    at = memo->next++ % PLACES;
    buf_set(&memo->places[at].key, buf_str(&memo->asked));
    buf_set(&memo->places[at].text, buf_str(&s->a));
    memo->places[at].prompt_ends = prompt_ends;
}
