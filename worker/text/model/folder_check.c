/* Contradictions between the files of a model folder (folder_check.h). tokenizer.json decides which
 * ids texts have. The others name tokens by id or by text, with flags, and transformers changes its
 * tokenizer after them: so a difference means that an engine's own ids are not the gateway's. */
#include "worker/text/model/folder_check.h"

#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "worker/text/model/folder.h"
#include "worker/text/model/model_internal.h"

enum { QUOTE_MAX = 40 };

/* Writes the beginning of a text of the folder as JSON, which has no control characters. */
static void quote(struct buf *out, struct str text)
{
    json_write_string(out, str_sub(text, 0, utf8_cut(text, QUOTE_MAX)));
}

/* --- special tokens --- */

/* Warns of a special token that tokenizer.json lacks or that two files name differently. */
static void check_special(struct model *m, const struct folder *f, const char *name)
{
    const struct json *config = json_get(f->tokenizer_config, name);
    struct str text = json_string(json_get(&m->special, name));
    struct str other = token_text(json_get(f->special_tokens_map, name));

    if (!text.p)
        return;
    if (tokenizer_id(m->tokenizer, text) < 0) {
        buf_printf(&m->warnings,
                   "%s: %s: ", config ? "tokenizer_config.json" : "special_tokens_map.json", name);
        quote(&m->warnings, text);
        buf_puts(&m->warnings, " is no token of tokenizer.json: prompts encode it as text, and no "
                               "answer ends with it\n");
    }
    if (config && other.p && !str_eq(text, other)) {
        buf_printf(&m->warnings, "special_tokens_map.json: %s: ", name);
        quote(&m->warnings, other);
        buf_puts(&m->warnings, " is ignored: tokenizer_config.json has ");
        quote(&m->warnings, text);
        buf_add_c(&m->warnings, '\n');
    }
}

/* Warns if the configuration names another first token than the template writes.
 * generation_config.json, which is the newer one of some folders, wins as in transformers. */
static void check_bos_id(struct model *m, const struct folder *f)
{
    const struct json *newer = json_get(f->generation_config, "bos_token_id");
    const struct json *v = newer ? newer : json_get(f->config, "bos_token_id");
    struct str bos = json_string(json_get(&m->special, "bos_token"));
    int32_t id = bos.p ? tokenizer_id(m->tokenizer, bos) : -1;
    int64_t told;

    if (id < 0 || json_to_i64(v, &told) != 0 || told == id)
        return;
    buf_printf(&m->warnings, "%s: bos_token_id: %lld is ignored: bos_token is ",
               newer ? "generation_config.json" : "config.json", (long long)told);
    quote(&m->warnings, bos);
    buf_printf(&m->warnings, ", which has the id %d\n", id);
}

/* --- added_tokens_decoder: {"id": {"content", "special", ...}} of tokenizer_config.json --- */

/* Returns the flag that differs, or NULL. */
static const char *differing_flag(const struct json *entry, const struct added_token *t)
{
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"special", t->special},
                 {"lstrip", t->lstrip},
                 {"rstrip", t->rstrip},
                 {"single_word", t->single_word},
                 {"normalized", t->normalized}};

    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const struct json *v = json_get(entry, flags[i].name);

        if (v && (!json_is(v, JSON_BOOL) || json_is_true(v) != flags[i].value))
            return flags[i].name;
    }
    return NULL;
}

/* Checks one entry. Returns false with a warning if tokenizer.json has another token or flag. */
static bool check_decoder_entry(struct model *m, const struct json_member *entry)
{
    struct str key = json_text(&entry->key);
    struct str content = json_string(json_get(&entry->value, "content"));
    const struct added_token *t = NULL;
    const char *flag;
    uint64_t id;

    if (str_to_u64(key, INT32_MAX, &id) == 0)
        t = tokenizer_added_of(m->tokenizer, (int32_t)id);
    if (t && str_eq(t->content, content)) {
        flag = differing_flag(&entry->value, t);
        if (!flag)
            return true;
        buf_puts(&m->warnings, "tokenizer_config.json: added_tokens_decoder: ");
        quote(&m->warnings, key);
        buf_printf(&m->warnings, ": %s of ", flag);
        quote(&m->warnings, content);
        buf_puts(&m->warnings, " is not that of tokenizer.json, which decides\n");
        return false;
    }
    buf_puts(&m->warnings, "tokenizer_config.json: added_tokens_decoder: ");
    quote(&m->warnings, key);
    buf_puts(&m->warnings, ": ");
    quote(&m->warnings, content);
    buf_puts(&m->warnings, " is ignored: in tokenizer.json the id is ");
    if (t)
        quote(&m->warnings, t->content);
    else
        buf_puts(&m->warnings, "no added token");
    buf_add_c(&m->warnings, '\n');
    return false;
}

/* Mentions the first entry that differs. */
static void check_decoder(struct model *m, const struct folder *f)
{
    const struct json *list = json_get(f->tokenizer_config, "added_tokens_decoder");

    for (uint32_t i = 0; json_is(list, JSON_OBJECT) && i < list->n; i++)
        if (!check_decoder_entry(m, &list->members[i]))
            return;
}

/* --- the rest --- */

static void check_vocab_size(struct model *m, const struct folder *f)
{
    size_t ids = tokenizer_vocab_size(m->tokenizer);
    const struct json *v = json_get(f->config, "vocab_size");
    int64_t n;

    if (!v)
        v = json_get(json_get(f->config, "text_config"), "vocab_size");
    if (json_to_i64(v, &n) == 0 && n > 0 && (uint64_t)n < ids)
        buf_printf(&m->warnings,
                   "config.json: vocab_size: %lld is less than the %zu ids of tokenizer.json: an "
                   "engine fails at the others\n",
                   (long long)n, ids);
}

int folder_check(struct model *m, const struct folder *f, struct err *e)
{
    if (json_is_true(json_get(f->tokenizer_config, "split_special_tokens")))
        return err_set(
            e, ERR_UNSUPPORTED,
            "tokenizer_config.json: split_special_tokens: true is not supported: special "
            "tokens in a prompt would be text");
    for (size_t i = 0; i < ARRAY_LEN(special_names); i++)
        check_special(m, f, special_names[i]);
    check_bos_id(m, f);
    check_decoder(m, f);
    check_vocab_size(m, f);
    return 0;
}
