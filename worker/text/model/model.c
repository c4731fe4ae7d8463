/* struct model from a folder, and whole prompts (model.h). The order of loading matters, because
 * each step needs the ones before:
 *
 *   folder_read       the files' texts                                    (folder.c)
 *   load_tokenizer    tokenizer.json, or the built-in one
 *   load_templates    compiled; one more for requests with tools, if there is one
 *   special_load      bos, eos, ... as the template sees them             (special_tokens.c)
 *   folder_check      whether the files agree                             (folder_check.c)
 *   stops_load        the ids that end a turn                             (special_tokens.c)
 *   load_facts        vocabulary, context length, experts
 *   choose_family     named, or known by its template                     (model_family.c)
 *   choose_parsers    named, the family's, or found by the template's marks
 *   model_probe       what the template does, found by rendering          (probe.c)
 *   tool_images       where pictures of tools' results are shown          (tool_images.c)
 *
 * Loading runs before the workers are forked. After that a model never changes, and all threads
 * share it. A thread writes only to its model_scratch. */

#include "worker/text/model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/text/model/folder.h"
#include "worker/text/model/folder_check.h"
#include "worker/text/model/pictures.h"
#include "worker/text/model/round_trip.h"
#include "worker/text/model/special_tokens.h"
#include "worker/text/model/standin.h"
#include "worker/text/model/standin_memo.h"
#include "worker/text/model/tool_images.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/request/chat.h"

/* --- the built-in model --- */

/* ChatML turns and Hermes tool calls. The template is probed like any other, so tests of the
 * gateway without a model folder use the same code as with one. */
static const char builtin_source[] =
    "{%- macro text(content) %}\n"
    "    {%- if content is string %}{{- content }}\n"
    "    {%- elif content %}{%- for part in content %}{{- part.text }}{%- endfor %}\n"
    "    {%- endif %}\n"
    "{%- endmacro %}\n"
    "{%- if tools %}\n"
    "    {{- '<|im_start|>system\\n# Tools\\n\\nCall a function by writing\\n<tool_call>\\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\\n</tool_call>\\n\\n<tools>' "
    "}}\n"
    "    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}\n"
    "    {{- '\\n</tools><|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + text(message.content) }}\n"
    "    {%- for call in message.tool_calls or [] %}\n"
    "        {{- '\\n<tool_call>\\n{\"name\": ' + call.function.name | tojson"
    " + ', \"arguments\": ' }}\n"
    "        {%- if call.function.arguments is string %}{{- call.function.arguments }}\n"
    "        {%- else %}{{- call.function.arguments | tojson }}\n"
    "        {%- endif %}\n"
    "        {{- '}\\n</tool_call>' }}\n"
    "    {%- endfor %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

static struct str builtin_template(void)
{
    return str_of(builtin_source, sizeof(builtin_source) - 1);
}

/* --- models --- */

static bool is_given(const char *s)
{
    return s && *s;
}

/* --- tokenizer and templates --- */

/* Says which other form of a tokenizer the folder has in place of tokenizer.json. */
static int fault_no_tokenizer(const char *dir, struct err *e)
{
    static const char *const forms[] = {"tokenizer.model", "tekken.json", "tiktoken.model",
                                        "vocab.json", "vocab.txt"};
    struct buf path = {0};
    int rc = -1;

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s", dir, forms[i]);
        buf_add_c(&path, 0);
        if (access(path.p, F_OK) != 0)
            continue;
        rc = err_set(e, ERR_CONFIG,
                     "%s has %s but no tokenizer.json, the only form that is read: save it with a "
                     "fast tokenizer of transformers",
                     dir, forms[i]);
        break;
    }
    buf_done(&path);
    return rc;
}

/* Loads the tokenizer. dir NULL: the built-in one. */
static int load_tokenizer(struct model *m, const char *dir, struct err *e)
{
    struct buf path = {0};
    int rc;

    if (!dir) {
        m->tokenizer = tokenizer_builtin();
        return 0;
    }
    buf_printf(&path, "%s/tokenizer.json", dir);
    buf_add_c(&path, 0);
    rc = tokenizer_load(path.p, &m->tokenizer, e);
    if (rc != 0 && e->sys == ENOENT)
        rc = folder_is_link(path.p)
                 ? err_set(e, ERR_IO, "%s is a link to a file that does not exist", path.p)
                 : fault_no_tokenizer(dir, e);
    buf_done(&path);
    return rc;
}

/* Reports whether two templates write the same: one newline at the end, which editors add to files,
 * is no part of a template. */
static bool same_template(struct str a, struct str b)
{
    a.len -= str_ends(a, STR("\n"));
    b.len -= str_ends(b, STR("\n"));
    return str_eq(a, b);
}

/* Loads the templates of --chat-template or of the folder, or the built-in one without a folder. */
static int load_templates(struct model *m, const struct model_options *o, const struct folder *f,
                          struct err *e)
{
    struct str source = f->template_default;

    if (!source.p && !is_given(o->dir))
        source = builtin_template();
    if (!source.p && f->template_tools.p) {
        source = f->template_tools;
        buf_puts(&m->warnings, "the folder's only chat template is tool_use, which is for requests "
                               "with tools: all requests use it; name another with "
                               "--chat-template\n");
    }
    if (!source.p)
        return err_set(e, ERR_CONFIG, "%s has no chat template; give one with --chat-template",
                       o->dir);
    if (source.len == 0)
        return err_set(e, ERR_CONFIG, "%s: the chat template is empty", o->dir);
    if (template_compile(source, "chat template", &m->template_default, NULL, e) != 0)
        return -1;
    if (f->template_tools.p && template_compile(f->template_tools, "chat template tool_use",
                                                &m->template_tools, NULL, e) != 0)
        return -1;
    if (str_starts(source, STR("\xef\xbb\xbf")))
        buf_puts(&m->warnings,
                 "the chat template begins with a byte order mark, which becomes part "
                 "of each prompt\n");
    if (f->template_json.p && !same_template(f->template_json, source))
        buf_printf(&m->warnings,
                   "chat_template of tokenizer_config.json or chat_template.json is ignored: %.*s "
                   "has another one\n",
                   (int)f->template_from.len, f->template_from.p);
    if (is_given(o->dir) && f->template_default.p)
        buf_printf(&m->notes, "chat template from %.*s%s\n", (int)f->template_from.len,
                   f->template_from.p ? f->template_from.p : "",
                   m->template_tools ? ", another one for requests with tools" : "");
    return 0;
}

/* --- facts --- */

/* Returns the first of the keys that config, or its text_config, has as a positive number. A number
 * that cannot be a model's is mentioned in the notes. */
static uint32_t config_number(struct model *m, const struct folder *f, const char *const *keys,
                              uint32_t max)
{
    for (; *keys; keys++) {
        const struct json *v = json_get(f->config, *keys);
        int64_t n;

        if (!v)
            v = json_get(json_get(f->config, "text_config"), *keys);
        if (json_to_i64(v, &n) == 0 && n > 0 && n <= max)
            return (uint32_t)n;
        if (json_is(v, JSON_NUMBER) && !(json_to_i64(v, &n) == 0 && n == 0))
            buf_printf(&m->notes, "config.json: %s: %.*s is ignored: no number from 0 to %u\n",
                       *keys, (int)MIN_OF(json_text(v).len, (size_t)40), json_text(v).p, max);
    }
    return 0;
}

/* Reads facts of the model; 0 if no file has them. */
static void load_facts(struct model *m, const struct model_options *o, const struct folder *f)
{
    static const char *const vocab[] = {"vocab_size", NULL};
    static const char *const context[] = {"max_position_embeddings", "model_max_length",
                                          "max_sequence_length", "n_positions", NULL};
    static const char *const topk[] = {"num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                       "moe_k", NULL};
    static const char *const indexer[] = {"index_topk", NULL};
    static const char *const layers[] = {"num_hidden_layers", "n_layer", NULL};
    uint32_t ids = (uint32_t)tokenizer_vocab_size(m->tokenizer);
    int64_t n;

    m->info.vocab_size = MAX_OF(config_number(m, f, vocab, INT32_MAX), ids);
    m->info.context_length = o->context_length;
    if (!m->info.context_length)
        m->info.context_length = config_number(m, f, context, INT32_MAX);
    if (!m->info.context_length &&
        json_to_i64(json_get(f->tokenizer_config, "model_max_length"), &n) == 0 && n > 0 &&
        n < INT32_MAX)
        m->info.context_length = (uint32_t)n;
    m->info.moe_topk = config_number(m, f, topk, 1024);
    m->info.layers = config_number(m, f, layers, 4096);
    if (m->info.moe_topk)
        m->info.moe_layers = m->info.layers;
    m->info.indexer_topk = config_number(m, f, indexer, 1 << 20);
}

/* Returns the last segment of the path, which names the model. */
static const char *base_name(struct arena *a, const char *dir)
{
    struct str s = str_cstr(dir);
    size_t from;

    while (s.len > 1 && s.p[s.len - 1] == '/')
        s.len--;
    for (from = s.len; from > 0 && s.p[from - 1] != '/'; from--)
        ;
    return arena_cstr(a, str_sub(s, from, s.len));
}

/* Chooses the family: --tito-family, or by the marks of the template. */
static int choose_family(struct model *m, const struct model_options *o, struct err *e)
{
    m->family = family_detect(m->template_default);
    if (!is_given(o->tito_family))
        return 0;
    m->family = family_named(o->tito_family);
    m->family_forced = true;
    if (!m->family)
        return err_set(e, ERR_CONFIG, "unknown --tito-family %s; known: %s", o->tito_family,
                       family_names());
    return 0;
}

/* Reports an unknown parser and lists the known ones. Returns -1. */
static int unknown_parser(const char *what, const char *name, void (*known)(struct buf *out),
                          struct err *e)
{
    struct buf names = {0};

    known(&names);
    (void)err_set(e, ERR_CONFIG, "--%s-parser: unknown: %.64s; known: %.*s", what, name,
                  (int)names.len, names.p);
    buf_done(&names);
    return -1;
}

/* Writes why a parser was chosen: "the template has "<tool_call>"", or the setting or family. */
static struct str reason_text(struct arena *a, const char *flag, const char *family,
                              const char *const *marks)
{
    struct buf b = {0};
    struct str ret;

    if (flag)
        return arena_printf(a, "named by %s", flag);
    if (family)
        return arena_printf(a, "the family %s writes so", family);
    if (!marks[0])
        return STR("the template has no mark of any known parser");
    buf_puts(&b, "the template has ");
    json_write_string(&b, str_cstr(marks[0]));
    if (marks[1]) {
        buf_puts(&b, " and ");
        json_write_string(&b, str_cstr(marks[1]));
    }
    ret = arena_str(a, buf_str(&b));
    buf_done(&b);
    return ret;
}

/* Stores the reasons for the chosen parsers, for model_report. */
static void store_reasons(struct model *m, const struct model_options *o,
                          const struct parser_marks *x)
{
    const struct model_family *f = m->family;

    m->tool_why = reason_text(&m->arena, is_given(o->tool_parser) ? "--tool-parser" : NULL,
                              f->tool_parser ? f->name : NULL, x->tool);
    m->reasoning_why =
        reason_text(&m->arena, is_given(o->reasoning_parser) ? "--reasoning-parser" : NULL,
                    f->reasoning_parser ? f->name : NULL, x->reasoning);
}

/* Chooses the parsers: by the setting, else by the family, else by the template's marks. */
static int choose_parsers(struct model *m, const struct model_options *o, struct err *e)
{
    enum reasoning_kind reasoning = REASONING_NONE;
    enum tool_kind tool = TOOL_NONE;
    const char *want_tool = is_given(o->tool_parser) ? o->tool_parser : m->family->tool_parser;
    const char *want_reasoning =
        is_given(o->reasoning_parser) ? o->reasoning_parser : m->family->reasoning_parser;
    const struct template *t = m->template_tools ? m->template_tools : m->template_default;
    struct parser_marks marks = parser_detect(template_source(t), &tool, &reasoning);

    if (want_tool && tool_kind_named(str_cstr(want_tool), &tool) != 0)
        return unknown_parser("tool", want_tool, tool_kind_names, e);
    if (want_reasoning && reasoning_kind_named(str_cstr(want_reasoning), &reasoning) != 0)
        return unknown_parser("reasoning", want_reasoning, reasoning_kind_names, e);
    m->info.tool_parser = tool_kind_name(tool);
    m->info.reasoning_parser = reasoning_kind_name(reasoning);
    m->info.family = m->family->name;
    store_reasons(m, o, &marks);
    return 0;
}

/* Marks special tokens and stops, by id. */
static void mark_special(struct model *m)
{
    m->n_known = tokenizer_vocab_size(m->tokenizer);
    m->is_special = arena_zalloc(&m->arena, m->n_known);
    for (size_t i = 0; i < tokenizer_added_count(m->tokenizer); i++) {
        const struct added_token *t = tokenizer_added(m->tokenizer, i);

        if (t->special && t->id >= 0 && (size_t)t->id < m->n_known)
            m->is_special[t->id] = 1;
    }
    for (size_t i = 0; i < m->n_stops; i++)
        if (m->stops[i].id >= 0 && (size_t)m->stops[i].id < m->n_known)
            m->is_special[m->stops[i].id] = 1;
}

/* Computes a hash of the special tokens and of the ids that end a turn. */
static uint64_t hash_special(const struct model *m)
{
    struct buf text = {0};
    uint64_t h;

    json_write(&text, &m->special);
    for (size_t i = 0; i < m->n_stops; i++)
        buf_printf(&text, " %d", m->stops[i].id);
    h = str_hash(buf_str(&text), 0);
    buf_done(&text);
    return h;
}

/* Computes the fingerprint by which a session knows the model that made it
 * (session/record/origin.c). */
static void compute_fingerprint(struct model *m)
{
    struct str tools = m->template_tools ? template_source(m->template_tools) : STR("");

    m->info.fingerprint = (struct model_fingerprint){
        .tokenizer = tokenizer_fingerprint(m->tokenizer),
        .special = hash_special(m),
        .template = str_hash(tools, str_hash(template_source(m->template_default), 0)),
    };
    if (m->tool_images_unlike)
        m->info.fingerprint.template =
            str_hash(str_cstr(m->info.tool_images), m->info.fingerprint.template);
}

/* --- life --- */

/* Returns -1 and ERR_CONFIG for a path that is not a folder. */
static int fault_folder(const char *dir, struct err *e)
{
    struct stat st;

    if (stat(dir, &st) == 0)
        return err_set(e, ERR_CONFIG, "the model folder %s is a file; name the folder it lies in",
                       dir);
    return err_set(e, ERR_CONFIG,
                   "the model folder %s does not exist; a local folder is needed, with "
                   "tokenizer.json and the chat template: rollgate downloads nothing",
                   dir);
}

/* Loads everything. Returns -1 and e; the caller then frees the model. */
static int load_model_folder(struct model *m, const struct model_options *o, struct err *e)
{
    const char *dir = is_given(o->dir) ? o->dir : NULL;
    struct folder f;
    struct stat st;
    struct model_trial trial = {0};
    struct model_scratch *s;
    int rc;

    if (dir && (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)))
        return fault_folder(dir, e);
    if (folder_read(&m->arena, dir, is_given(o->chat_template_file) ? o->chat_template_file : NULL,
                    &f, e) != 0 ||
        load_tokenizer(m, dir, e) != 0 || load_templates(m, o, &f, e) != 0)
        return -1;
    if (special_load(m, &f, e) != 0 || folder_check(m, &f, e) != 0 ||
        stops_load(m, &f, dir != NULL, e) != 0)
        return -1;
    load_facts(m, o, &f);
    pictures_load(m, &f);
    if (choose_family(m, o, e) != 0 || choose_parsers(m, o, e) != 0)
        return -1;
    m->info.name = is_given(o->served_name) ? arena_cstr(&m->arena, str_cstr(o->served_name))
                   : dir                    ? base_name(&m->arena, dir)
                                            : "rollgate-builtin";
    standin_draw_mark(m);
    m->trial = &trial;
    s = model_scratch_new(m);
    model_probe(m, s);
    pictures_probe(m, s);
    rc = tool_images_choose(m, s, is_given(o->tool_images) ? o->tool_images : NULL, e);
    if (!is_given(o->tool_parser) && !m->family->tool_parser)
        round_trip_choose(m, s);
    model_scratch_free(s);
    m->trial = NULL;
    if (trial.failed)
        return err_set(e, ERR_CONFIG, "a chat of a few messages is too much: %s", trial.cause.text);
    mark_special(m);
    compute_fingerprint(m);
    return rc;
}

int model_load(const struct model_options *o, struct model **ret, struct err *e)
{
    struct model *m = mem_zalloc(sizeof(*m));

    *ret = NULL;
    m->learned = arena_zalloc(&m->arena, sizeof(*m->learned));
    if (load_model_folder(m, o, e) != 0) {
        model_free(m);
        return -1;
    }
    *ret = m;
    return 0;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    template_free(m->template_default);
    template_free(m->template_tools);
    tokenizer_free(m->tokenizer);
    buf_done(&m->notes);
    buf_done(&m->warnings);
    arena_done(&m->arena);
    free(m);
}

const struct template *model_template(const struct model *m, bool tools)
{
    return tools && m->template_tools ? m->template_tools : m->template_default;
}

struct str model_warnings(const struct model *m)
{
    return buf_str(&m->warnings);
}

const struct json *model_special(const struct model *m)
{
    return &m->special;
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

const struct tokenizer *model_tokenizer(const struct model *m)
{
    return m->tokenizer;
}

bool model_is_special(const struct model *m, int32_t id)
{
    return id >= 0 && (size_t)id < m->n_known && m->is_special[id];
}

struct model_scratch *model_scratch_new(const struct model *m)
{
    struct model_scratch *s = mem_zalloc(sizeof(*s));

    s->model = m;
    s->encoder = encoder_new(m->tokenizer);
    return s;
}

void model_scratch_free(struct model_scratch *s)
{
    if (!s)
        return;
    encoder_free(s->encoder);
    arena_done(&s->arena);
    buf_done(&s->a);
    buf_done(&s->b);
    buf_done(&s->full);
    vec_done(&s->ids);
    standin_memo_free(s->memo);
    free(s);
}

void model_scratch_count(struct model_scratch *s, atomic_size_t *sum)
{
    s->arena.sum = sum;
}

void scratch_release(struct model_scratch *s)
{
    struct arena empty = {.sum = s->arena.sum};

    arena_done(&s->arena);
    s->arena = empty;
    buf_done_above(&s->a, MODEL_SCRATCH_KEEP);
    buf_done_above(&s->b, MODEL_SCRATCH_KEEP);
    buf_done_above(&s->full, MODEL_SCRATCH_KEEP);
    if (s->ids.cap > MODEL_SCRATCH_KEEP / sizeof(*s->ids.at))
        vec_done(&s->ids);
}

void model_scratch_remember(struct model_scratch *s)
{
    if (!s->memo)
        s->memo = standin_memo_new(s);
}

void model_scratch_limit(struct model_scratch *s, uint32_t max_ids)
{
    s->max_ids = max_ids;
}

void model_scratch_audit(struct model_scratch *s, bool audit)
{
    s->audits = audit;
}

int may_leave(const struct model_scratch *s, struct str text, struct err *e)
{
    size_t fewest = s->max_ids ? tokenizer_fewest(s->model->tokenizer, text) : 0;

    if (standin_marked(s->model, text))
        return err_set(e, ERR_PROMPT_LEAK,
                       "the prompt holds text that only stands in for earlier messages or tools: "
                       "it does not go out");
    if (fewest <= s->max_ids)
        return 0;
    return err_context(e, (struct err_overflow){fewest, 0, s->max_ids},
                       "This model's maximum context length is %u tokens. However, your messages "
                       "resulted in at least %zu tokens.",
                       s->max_ids, fewest);
}

/* --- whole prompts --- */

/* Renders the whole chat as the template writes it. */
static int whole_text(const struct model *m, struct model_scratch *s, const struct chat *chat,
                      bool generation_prompt, struct buf *text, struct err *e)
{
    struct rendering r = {
        .tools = chat->tools, .kwargs = chat->kwargs, .generation_prompt = generation_prompt};

    if (json_is(chat->messages, JSON_ARRAY)) {
        r.messages = chat->messages->items;
        r.n = chat->messages->n;
    }
    arena_reset(&s->arena);
    return model_text(m, &s->arena, &r, text, e);
}

/* Renders the whole chat and appends its ids. */
static int render_whole(const struct model *m, struct model_scratch *s, const struct chat *chat,
                        bool generation_prompt, struct token_vec *ids, struct err *e)
{
    int rc;

    buf_clear(&s->a);
    rc = whole_text(m, s, chat, generation_prompt, &s->a, e);
    if (rc == 0)
        rc = may_leave(s, buf_str(&s->a), e);
    if (rc == 0)
        rc = pictures_encode(s, buf_str(&s->a), ids, e);
    scratch_release(s);
    return rc;
}

int model_prompt(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 struct token_vec *ids, struct err *e)
{
    return render_whole(m, s, chat, true, ids, e);
}

int model_canonical(const struct model *m, struct model_scratch *s, const struct chat *chat,
                    struct token_vec *ids, struct err *e)
{
    return render_whole(m, s, chat, false, ids, e);
}

int model_canonical_text(const struct model *m, struct model_scratch *s, const struct chat *chat,
                         struct buf *text, struct err *e)
{
    int rc = whole_text(m, s, chat, false, text, e);

    scratch_release(s);
    return rc;
}

int model_canonical_step(struct model_scratch *s, struct str text, size_t *at,
                         struct token_vec *ids, struct err *e)
{
    if (*at > 0 || !pictures_guarded(s->model, text))
        return encoder_encode_step(s->encoder, text, at, ids, e);
    *at = text.len;
    return pictures_encode(s, text, ids, e) == 0 ? 1 : -1;
}
