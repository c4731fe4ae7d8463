/* The special tokens of a model folder and the ids that end a turn (special_tokens.h). A stop id
 * comes from generation_config.json, config.json and the text of eos_token: each engine reads one
 * of them. */
#include "worker/text/model/special_tokens.h"

#include "worker/text/model/folder.h"
#include "worker/text/model/model_internal.h"

/* --- special tokens --- */

const char *const special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};

struct str token_text(const struct json *v)
{
    return json_is(v, JSON_OBJECT) ? json_string(json_get(v, "content")) : json_string(v);
}

/* Reports whether one of the templates has the name. */
static bool is_mentioned(const struct model *m, const char *name)
{
    return template_mentions(m->template_default, name) ||
           (m->template_tools && template_mentions(m->template_tools, name));
}

/* Adds the list additional_special_tokens if a template names it. */
static int load_special_list(struct model *m, const struct json *list, struct err *e)
{
    struct json texts = {.kind = JSON_ARRAY};

    if (!json_is(list, JSON_ARRAY) || !is_mentioned(m, "additional_special_tokens"))
        return 0;
    texts.items = arena_alloc(&m->arena, (list->n + 1) * sizeof(*texts.items));
    for (uint32_t i = 0; i < list->n; i++) {
        struct str text = token_text(&list->items[i]);

        if (!text.p)
            return err_set(e, ERR_CONFIG, "additional_special_tokens[%u] is no text", i);
        texts.items[texts.n++] = json_make_string(text);
    }
    if (texts.n)
        object_put(&m->special, "additional_special_tokens", texts);
    return 0;
}

enum { EXTRA_MAX = 256 };

/* Adds the members of extra_special_tokens that a template names, such as image_token. */
static int load_extra_special(struct model *m, const struct json *extra, struct err *e)
{
    if (json_is(extra, JSON_OBJECT) && extra->n > EXTRA_MAX)
        return err_set(e, ERR_CONFIG,
                       "tokenizer_config.json: extra_special_tokens: %u names; at most %d are "
                       "supported",
                       extra->n, EXTRA_MAX);
    for (uint32_t i = 0; json_is(extra, JSON_OBJECT) && i < extra->n; i++) {
        const char *name = arena_cstr(&m->arena, json_text(&extra->members[i].key));
        struct str text = token_text(&extra->members[i].value);

        if (!text.p || !is_mentioned(m, name) || json_get(&m->special, name))
            continue;
        if (model_sets_variable(str_cstr(name)))
            return err_set(e, ERR_CONFIG,
                           "tokenizer_config.json: extra_special_tokens: the name %.64s is taken",
                           name);
        object_put(&m->special, name, json_make_string(text));
    }
    return 0;
}

int special_load(struct model *m, const struct folder *f, struct err *e)
{
    const struct json *list = json_get(f->tokenizer_config, "additional_special_tokens");
    const struct json *extra = json_get(f->tokenizer_config, "extra_special_tokens");

    m->special = make_object(&m->arena, ARRAY_LEN(special_names) + 1 + (extra ? extra->n : 0));
    for (size_t i = 0; i < ARRAY_LEN(special_names); i++) {
        const struct json *v = json_get(f->tokenizer_config, special_names[i]);
        const struct json *used = v ? v : json_get(f->special_tokens_map, special_names[i]);
        struct str text = token_text(used);

        if (!text.p && !json_is_null(used))
            return err_set(e, ERR_CONFIG, "%s: %s is neither a text nor an object with its content",
                           v ? "tokenizer_config.json" : "special_tokens_map.json",
                           special_names[i]);
        if (text.p)
            object_put(&m->special, special_names[i], json_make_string(text));
    }
    if (!list)
        list = json_is(extra, JSON_ARRAY)
                   ? extra
                   : json_get(f->special_tokens_map, "additional_special_tokens");
    return load_special_list(m, list, e) == 0 ? load_extra_special(m, extra, e) : -1;
}

/* --- ids that end a turn --- */

void model_add_stop(struct model *m, int32_t id)
{
    struct stop *at;

    for (size_t i = 0; i < m->n_stops; i++) {
        if (m->stops[i].id == id)
            return;
    }
    at = arena_alloc(&m->arena, (m->n_stops + 1) * sizeof(*at));
    if (m->n_stops)
        memcpy(at, m->stops, m->n_stops * sizeof(*at));
    at[m->n_stops++] =
        (struct stop){.id = id, .text = arena_str(&m->arena, tokenizer_text(m->tokenizer, id))};
    m->stops = at;
}

/* Adds a stop id that the member of that file names. Warns of an id that no token has, which is
 * ignored, and of one of ordinary text. */
static void add_stop(struct model *m, int64_t id, const char *file, const char *member)
{
    bool known = id >= 0 && id < (int64_t)tokenizer_vocab_size(m->tokenizer);
    size_t before = m->n_stops;

    if (known)
        model_add_stop(m, (int32_t)id);
    if (!known)
        buf_printf(&m->warnings, "%s: %s: %lld is ignored: no token has it\n", file, member,
                   (long long)id);
    else if (m->n_stops > before && !tokenizer_is_added(m->tokenizer, (int32_t)id))
        buf_printf(&m->warnings,
                   "%s: %s: %lld is no added token of tokenizer.json: answers end where the model "
                   "writes this piece of ordinary text\n",
                   file, member, (long long)id);
}

enum { STOP_IDS_MAX = 256 };

/* Adds the ids of the file's "eos_token_id": one id or a list. */
static int stop_ids_of(struct model *m, const struct json *config, const char *file, struct err *e)
{
    const struct json *v = json_get(config, "eos_token_id");
    bool is_list = json_is(v, JSON_ARRAY);
    uint32_t n = is_list ? v->n : !json_is_null(v);

    if (n > STOP_IDS_MAX)
        return err_set(e, ERR_CONFIG, "%s: eos_token_id: %u ids; at most %d are supported", file, n,
                       STOP_IDS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        int64_t id;

        if (json_to_i64(is_list ? &v->items[i] : v, &id) != 0)
            return err_set(e, ERR_CONFIG,
                           "%s: eos_token_id is neither an integer nor a list of them", file);
        add_stop(m, id, file, "eos_token_id");
    }
    return 0;
}

static void add_stop_text(struct model *m, struct str token)
{
    int32_t id = token.p ? tokenizer_id(m->tokenizer, token) : -1;

    if (id >= 0)
        add_stop(m, id, "tokenizer_config.json", "eos_token");
}

int stops_load(struct model *m, const struct folder *f, bool has_folder, struct err *e)
{
    struct str eos = json_string(json_get(&m->special, "eos_token"));

    if (stop_ids_of(m, f->generation_config, "generation_config.json", e) != 0 ||
        stop_ids_of(m, f->config, "config.json", e) != 0 ||
        stop_ids_of(m, json_get(f->config, "text_config"), "config.json: text_config", e) != 0)
        return -1;
    add_stop_text(m, eos);
    if (m->n_stops > 0)
        return 0;
    add_stop_text(m, STR("<|im_end|>"));
    add_stop_text(m, STR("<|endoftext|>"));
    if (has_folder)
        buf_puts(&m->notes, "no file names a token that ends a turn (eos_token_id, eos_token); "
                            "<|im_end|> and <|endoftext|> do, if the tokenizer has them\n");
    return 0;
}
