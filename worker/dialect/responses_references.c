/* Finds the items that item_reference items name (responses_references.h). Ids are read strictly:
 * an id that the gateway did not make names no item. The answer of a
 * compaction has that item alone. */
#include "worker/dialect/responses_references.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/thought_blocks.h"

/* Returns the bare response id: the id without prefixes, up to the next underscore. */
struct str response_bare_id(struct str id)
{
    static const char *const heads[] = {"resp_", "msg_", "rs_",       "fc_",  "ctc_",
                                        "tsc_",  "cmp_", "chatcmpl-", "cmpl-"};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        if (str_starts(id, str_cstr(heads[i])))
            id = str_sub(id, strlen(heads[i]), id.len);
    return str_sub(id, 0, str_find(id, STR("_"), 0));
}

bool references_is_item(const struct json *item)
{
    const struct json *type = json_get(item, "type");

    if (!json_is_null(type))
        return str_eq_c(json_string(type), "item_reference");
    return json_is_null(json_get(item, "role")) && json_is_null(json_get(item, "content")) &&
           json_is(json_get(item, "id"), JSON_STRING);
}

/* An id of an item: head, bare response id, "_" and a number. */
struct item_id {
    enum referenced_kind kind;
    struct str response;
    struct str headless;   /* the id without its head */
    struct str unnumbered; /* the id without "_" and number */
    bool is_numbered;
    uint64_t number;
};

/* Reads the number after the response. Numbers have no leading zeros. */
static bool read_number(struct str text, struct item_id *ret)
{
    ret->is_numbered = true;
    return str_to_u64(text, UINT32_MAX, &ret->number) == 0 && (text.len == 1 || text.p[0] != '0');
}

/* Reports whether items of the kind get such a number: every call, and thoughts and texts after the
 * first. */
static bool has_fitting_number(const struct item_id *v)
{
    if (v->kind == REFERENCED_CALL)
        return v->is_numbered;
    return !v->is_numbered || (v->kind != REFERENCED_COMPACTION && v->number > 0);
}

/* Returns false if it is not an id of an item. */
static bool read_item_id(struct str id, struct item_id *ret)
{
    static const struct {
        const char *text;
        enum referenced_kind kind;
    } heads[] = {{"rs_", REFERENCED_THOUGHT}, {"msg_", REFERENCED_TEXT},
                 {"fc_", REFERENCED_CALL},    {"ctc_", REFERENCED_CALL},
                 {"tsc_", REFERENCED_CALL},   {"cmp_", REFERENCED_COMPACTION}};

    size_t k = 0, head, end;

    while (k < ARRAY_LEN(heads) && !str_starts(id, str_cstr(heads[k].text)))
        k++;
    if (k == ARRAY_LEN(heads))
        return false;
    head = strlen(heads[k].text);
    end = str_find(id, STR("_"), head);
    *ret = (struct item_id){.kind = heads[k].kind,
                            .headless = str_sub(id, head, id.len),
                            .unnumbered = str_sub(id, 0, end)};
    ret->response = str_sub(ret->unnumbered, head, id.len);
    if (end != SIZE_MAX && !read_number(str_sub(id, end + 1, id.len), ret))
        return false;
    return ret->response.len > 0 && has_fitting_number(ret);
}

struct str references_answer(const struct json *item)
{
    struct str seal = json_string(json_get(item, "encrypted_content"));
    struct item_id v;

    if (read_item_id(json_string(json_get(item, "id")), &v))
        return v.response;
    return str_starts(seal, STR(RESPONSES_THOUGHT_SEAL))
               ? str_sub(seal, strlen(RESPONSES_THOUGHT_SEAL), seal.len)
               : (struct str){0};
}

bool references_is_stored(const struct dialect_past *past, struct str answer)
{
    bool compacts;

    return past && past->message && past->message(past->ctx, answer, &compacts);
}

/* Returns the number of blocks of the answer's thought. Remembers that of one answer. */
static size_t count_blocks(struct references *r, const struct json *m)
{
    struct arena a = {0};
    struct thought_block *blocks = NULL;

    if (r->counted != m)
        r->n_blocks = thought_blocks_read(&a, m, &blocks);
    r->counted = m;
    arena_done(&a);
    return r->n_blocks;
}

/* Reports whether the answer can have the thought or text. The number of them is not recorded. Each
 * has bytes or a seal, and ends at a seal or at an item of a different kind. */
static bool may_have_text(struct references *r, const struct item_id *id, const struct json *m)
{
    size_t thought = json_string(json_get(m, "reasoning_content")).len;
    struct str text = json_string(json_get(m, "content"));
    const struct json *calls = json_get(m, "tool_calls");
    size_t n_calls = json_is(calls, JSON_ARRAY) ? calls->n : 0;
    bool is_thought = id->kind == REFERENCED_THOUGHT;

    if (!is_thought && text_blank(text)) /* only an answer without other items has an empty text */
        return id->number == 0 && thought == 0 && n_calls == 0;
    if (id->number == 0 && (!is_thought || thought > 0))
        return true;
    thought += count_blocks(r, m);
    return id->number < (is_thought ? thought : text.len) &&
           id->number <= n_calls + (is_thought ? text.len + r->n_blocks : thought);
}

/* Adds the key. Returns false if it is in the map. */
static bool add_key(struct map *m, struct str key)
{
    static char present;

    return map_set(m, key, &present) == NULL;
}

/* Returns a text of the answer the first time, then an empty one. */
static struct str copy_text(struct references *r, const struct item_id *id, const struct json *m,
                            const char *member)
{
    return add_key(&r->copied, id->unnumbered) ? json_string(json_get(m, member)) : STR("");
}

const char *references_find(struct references *r, const struct dialect_past *past, struct str id,
                            struct referenced_item *ret)
{
    static const char unknown[] = "the id of an item of this session";
    const struct json *m = NULL, *call;
    bool compacts = false;
    struct item_id v;

    if (read_item_id(id, &v) && past && past->message)
        m = past->message(past->ctx, v.response, &compacts);
    if (!m || compacts != (v.kind == REFERENCED_COMPACTION))
        return unknown;
    *ret = (struct referenced_item){.kind = v.kind, .response = v.response};
    call = json_at(json_get(m, "tool_calls"), v.number);
    if (v.kind == REFERENCED_CALL ? !json_is(call, JSON_OBJECT)
                                  : !compacts && !may_have_text(r, &v, m))
        return unknown;
    if (!add_key(&r->ids, id) || (v.kind == REFERENCED_CALL && !add_key(&r->copied, v.headless)))
        return "the id of an item that no item_reference before it names";
    if (v.kind == REFERENCED_CALL)
        ret->call = *call;
    else if (v.kind == REFERENCED_THOUGHT)
        ret->text = copy_text(r, &v, m, "reasoning_content");
    else if (v.kind == REFERENCED_TEXT)
        ret->text = copy_text(r, &v, m, "content");
    else
        ret->text = compaction_summary(m);
    return NULL;
}

void references_done(struct references *r)
{
    map_done(&r->ids);
    map_done(&r->copied);
}
