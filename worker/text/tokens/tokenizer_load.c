/* Loading a tokenizer.json (tokenizer.h). Order: model (vocabulary and merges, or pieces and
 * scores), normalizer, pre_tokenizer, decoder. Then steps that need several of these: whether words
 * stay bytes (decide_byte_level), added tokens (their normalized patterns need the normalizer), the
 * template of special tokens, the bytes of each token, notes, and the fingerprint. The JSON tree is
 * freed at the end; everything kept is copied. */

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/tokenizer.h"
#include "worker/text/tokens/tokenizer_config.h"
#include "worker/text/tokens/tokenizer_parts.h"

/* Limits far above all known tokenizers. Affixes are added to each character; added tokens are
 * searched at each position of a text. */
enum {
    AFFIX_MAX = 256,
    ADDED_BYTES_MAX = 1024,
    ADDED_ALL_BYTES_MAX = 16 << 20,
    POST_IDS_MAX = 4096,
};

/* --- model --- */

/* Loads {piece: id}. Ids may be in any order and have gaps. */
static int load_vocab(struct tokenizer *t, const struct json *vocab, struct err *e)
{
    size_t bytes = 0;

    if (!json_is(vocab, JSON_OBJECT))
        return err_set(e, ERR_CONFIG, "model: vocab is not an object");
    for (uint32_t i = 0; i < vocab->n; i++)
        bytes += vocab->members[i].key.n;
    vocab_init(&t->vocab, vocab->n, bytes);
    for (uint32_t i = 0; i < vocab->n; i++) {
        const struct json_member *m = &vocab->members[i];
        int64_t id;

        if (json_to_i64(&m->value, &id) < 0)
            return err_set(e, ERR_CONFIG, "model: an id of vocab is not an integer");
        if (vocab_add(&t->vocab, json_string(&m->key), id, e) < 0)
            return -1;
    }
    return vocab_seal(&t->vocab, e);
}

/* Reads a merge: "a b" or ["a", "b"]. Returns 1 for a line that is not a merge ("#version ..."). */
static int read_merge(const struct json *merge, struct bpe_merge *ret, struct err *e)
{
    struct str text = json_string(merge);
    size_t blank;

    if (json_is(merge, JSON_ARRAY) && merge->n == 2) {
        *ret = (struct bpe_merge){json_string(&merge->items[0]), json_string(&merge->items[1])};
        if (ret->left.p && ret->right.p)
            return 0;
    }
    if (!text.p)
        return err_set(e, ERR_CONFIG, "model: a merge is neither a string nor a pair");
    if (str_starts(text, STR("#version")))
        return 1;
    blank = str_find(text, STR(" "), 0);
    if (blank == SIZE_MAX || str_find(text, STR(" "), blank + 1) != SIZE_MAX)
        return err_set(e, ERR_CONFIG, "model: merge %.*s is not two tokens",
                       (int)MIN_OF(text.len, 60), text.p);
    *ret = (struct bpe_merge){str_sub(text, 0, blank), str_sub(text, blank + 1, text.len)};
    return 0;
}

static int load_merges(struct tokenizer *t, const struct json *merges, struct err *e)
{
    struct bpe_merge *list = mem_calloc((size_t)merges->n + 1, sizeof(*list));
    size_t n = 0;
    int rc = 0;

    for (uint32_t i = 0; i < merges->n && rc >= 0; i++) {
        rc = read_merge(&merges->items[i], &list[n], e);
        n += rc == 0;
    }
    if (rc >= 0)
        rc = bpe_add_merges(&t->bpe, list, n, e);
    free(list);
    return rc < 0 ? -1 : 0;
}

/* Reads a flag that may be absent or null. */
static int load_flag(const struct json *model, const char *key, bool *ret, struct err *e)
{
    *ret = false;
    return json_is_null(json_get(model, key)) ? 0 : config_bool(model, key, -1, ret, e);
}

static int load_affix(struct tokenizer *t, const struct json *model, const char *key,
                      struct str *ret, struct err *e)
{
    struct str text;

    *ret = STR("");
    if (json_is_null(json_get(model, key)))
        return 0;
    if (config_string(model, key, &text, e) < 0)
        return -1;
    if (text.len > AFFIX_MAX)
        return err_set(e, ERR_UNSUPPORTED, "model: %s has more than %d bytes", key, AFFIX_MAX);
    *ret = arena_str(&t->arena, text);
    return 0;
}

static int load_unk(struct tokenizer *t, const struct json *model, struct err *e)
{
    struct str unk;

    if (json_is_null(json_get(model, "unk_token")))
        return 0;
    if (config_string(model, "unk_token", &unk, e) < 0)
        return -1;
    t->bpe.unk = vocab_id(&t->vocab, unk);
    if (t->bpe.unk < 0)
        t->bpe.unk = BPE_UNK_ABSENT;
    return 0;
}

static int check_model(const struct json *model, struct err *e)
{
    const struct json *dropout = json_get(model, "dropout");
    double rate;

    if (!json_is(model, JSON_OBJECT))
        return err_set(e, ERR_CONFIG, "no model");
    if (json_get(model, "type") && !str_eq_c(config_type(model), "BPE"))
        return config_refuse("model", model, e);
    if (!json_is(json_get(model, "merges"), JSON_ARRAY))
        return err_set(e, ERR_UNSUPPORTED, "model: no merges; only BPE is supported");
    if (json_get(model, "merges")->n > BPE_MERGES_MAX)
        return err_set(e, ERR_UNSUPPORTED, "model: more than %d merges", BPE_MERGES_MAX);
    if (!json_is_null(dropout) && (json_to_double(dropout, &rate) < 0 || rate != 0.0))
        return err_set(e, ERR_UNSUPPORTED, "model: BPE with dropout is not supported");
    return 0;
}

/* --- a unigram model: [[piece, score], ...] --- */

/* Loads [[piece, score], ...]. The id is the index in the list. */
static int load_scores(struct tokenizer *t, const struct json *vocab, double *scores, struct err *e)
{
    for (uint32_t i = 0; i < vocab->n; i++) {
        struct str piece = json_string(json_at(&vocab->items[i], 0));

        if (!piece.p || json_to_double(json_at(&vocab->items[i], 1), &scores[i]) < 0)
            return err_set(e, ERR_CONFIG, "model: item %u of vocab is no piece with its score", i);
        if (vocab_id(&t->vocab, piece) >= 0)
            return err_set(e, ERR_UNSUPPORTED, "model: piece %u stands in vocab twice", i);
        if (vocab_add(&t->vocab, piece, i, e) < 0)
            return -1;
    }
    return vocab_seal(&t->vocab, e);
}

/* Reads the unk_id; -1 if the model has none. */
static int load_unk_id(const struct json *model, size_t n, int64_t *ret, struct err *e)
{
    const struct json *unk = json_get(model, "unk_id");

    *ret = -1;
    if (json_is_null(unk))
        return 0;
    if (json_to_i64(unk, ret) < 0 || *ret < 0 || (size_t)*ret >= n)
        return err_set(e, ERR_CONFIG, "model: unk_id is no id of the vocabulary");
    return 0;
}

/* The scores belong to the model once it is made. Before that they are freed here. */
static int load_unigram(struct tokenizer *t, const struct json *model, struct err *e)
{
    const struct json *vocab = json_get(model, "vocab");
    size_t bytes = 0;
    double *scores;
    int64_t unk;

    if (!json_is(vocab, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "model: vocab is not a list");
    if (load_unk_id(model, vocab->n, &unk, e) < 0)
        return -1;
    for (uint32_t i = 0; i < vocab->n; i++)
        bytes += json_string(json_at(&vocab->items[i], 0)).len;
    if (bytes > UNIGRAM_BYTES_MAX)
        return err_set(e, ERR_UNSUPPORTED, "model: vocab has more than %d bytes of text",
                       UNIGRAM_BYTES_MAX);
    vocab_init(&t->vocab, vocab->n, bytes);
    scores = mem_calloc((size_t)vocab->n + 1, sizeof(*scores));
    if (load_scores(t, vocab, scores, e) < 0) {
        free(scores);
        return -1;
    }
    t->is_unigram = true;
    unigram_init(&t->unigram, &t->vocab, scores, (int32_t)unk);
    return load_flag(model, "byte_fallback", &t->unigram.byte_fallback, e);
}

static bool is_unigram(const struct json *model)
{
    return json_get(model, "type") ? str_eq_c(config_type(model), "Unigram")
                                   : json_is(json_get(model, "vocab"), JSON_ARRAY);
}

/* Loads the model by its type, or by the shape of the vocabulary in old files without a type. */
static int load_model(struct tokenizer *t, const struct json *model, struct err *e)
{
    const struct json *merges = json_get(model, "merges");
    struct bpe *b = &t->bpe;

    if (is_unigram(model))
        return load_unigram(t, model, e);
    if (check_model(model, e) < 0 || load_vocab(t, json_get(model, "vocab"), e) < 0)
        return -1;
    bpe_init(b, &t->vocab, merges->n);
    if (load_flag(model, "byte_fallback", &b->byte_fallback, e) < 0 ||
        load_flag(model, "fuse_unk", &b->fuse_unk, e) < 0 ||
        load_flag(model, "ignore_merges", &b->ignore_merges, e) < 0 ||
        load_affix(t, model, "continuing_subword_prefix", &b->prefix, e) < 0 ||
        load_affix(t, model, "end_of_word_suffix", &b->suffix, e) < 0 || load_unk(t, model, e) < 0)
        return -1;
    return load_merges(t, merges, e);
}

/* Decides whether byte-level words stay bytes, which is so unless the model needs characters. */
static void decide_byte_level(struct tokenizer *t)
{
    struct bpe *b = &t->bpe;

    if (t->is_unigram) {
        pretok_keep_byte_level(&t->pretok);
        return;
    }
    b->byte_level =
        t->pretok.byte_level_last && b->prefix.len == 0 && b->suffix.len == 0 && !b->byte_fallback;
    if (!b->byte_level)
        pretok_keep_byte_level(&t->pretok);
    bpe_seal(b);
}

/* --- added tokens --- */

/* Loads one entry, which must have every flag. id: as in the file; -1: it has none. */
static int load_added_token(struct tokenizer *t, const struct json *v, struct added_token *ret,
                            struct err *e)
{
    struct str content;
    uint32_t id = UINT32_MAX;

    if (json_get(v, "id") && config_uint(v, "id", INT32_MAX, &id, e) < 0)
        return -1;
    *ret = (struct added_token){.id = (int32_t)id};
    if (config_string(v, "content", &content, e) < 0 ||
        config_bool(v, "single_word", -1, &ret->single_word, e) < 0 ||
        config_bool(v, "lstrip", -1, &ret->lstrip, e) < 0 ||
        config_bool(v, "rstrip", -1, &ret->rstrip, e) < 0 ||
        config_bool(v, "normalized", -1, &ret->normalized, e) < 0 ||
        config_bool(v, "special", -1, &ret->special, e) < 0)
        return -1;
    if (content.len > ADDED_BYTES_MAX)
        return err_set(e, ERR_UNSUPPORTED, "added_tokens: \"%.*s...\" has more than %d bytes", 40,
                       content.p, ADDED_BYTES_MAX);
    ret->content = arena_str(&t->arena, content);
    return 0;
}

/* Fills the tries: one with raw patterns, a second one with the others in normalized form. */
static int load_patterns(struct tokenizer *t, struct err *e)
{
    struct normalizer_scratch scratch = {.regex = regex_scratch_new()};
    size_t bytes = 0;
    int rc = 0;

    for (size_t i = 0; i < t->added.patterns.n && rc == 0; i++) {
        const struct added_pattern *p = &t->added.patterns.at[i];
        struct str content = p->content;
        size_t head = 0;

        bytes += content.len;
        if (bytes > ADDED_ALL_BYTES_MAX) {
            rc = err_set(e, ERR_UNSUPPORTED, "added_tokens: more than %d bytes of text",
                         ADDED_ALL_BYTES_MAX);
            break;
        }
        if (!p->normalized) {
            trie_add(&t->added.raw, content, p->id);
            continue;
        }
        rc = normalizer_apply(&t->normalizer, &scratch, &content, &head, e);
        bytes += rc == 0 ? content.len : 0;
        if (rc == 0 && content.len == 0)
            rc = err_set(e, ERR_UNSUPPORTED,
                         "added token %d: nothing is left of it after normalization", p->id);
        if (rc == 0)
            trie_add(&t->added.normalized, content, p->id);
    }
    regex_scratch_free(scratch.regex);
    normalizer_scratch_done(&scratch);
    return rc;
}

/* Notes the first content that entries with different flags have. */
static void note_twice(struct tokenizer *t, const struct added_token *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct added_token *known = added_by_content(&t->added, entries[i].content);

        if (!known || added_same(known, &entries[i]))
            continue;
        buf_printf(&t->note,
                   "added_tokens[%zu]: \"%.*s\" is there again with other flags: the last ones "
                   "count, and versions of the reference library differ\n",
                   i, (int)MIN_OF(known->content.len, (size_t)40), known->content.p);
        return;
    }
}

/* Notes the first entry whose id differs from its id in the file. Like the reference library,
 * added_init chooses the ids. */
static void note_other_ids(struct tokenizer *t, const struct added_token *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct added_token *known = added_by_content(&t->added, entries[i].content);

        if (!known || entries[i].id < 0 || entries[i].id == known->id)
            continue;
        buf_printf(&t->note,
                   "added_tokens[%zu]: id: %d is ignored: \"%.*s\" gets %d, as in the reference "
                   "library\n",
                   i, entries[i].id, (int)MIN_OF(known->content.len, (size_t)40), known->content.p,
                   known->id);
        return;
    }
}

/* Loads the added tokens; the list may be absent. */
static int load_added(struct tokenizer *t, const struct json *list, struct err *e)
{
    struct added_token *entries;
    struct err cause;
    int rc = 0;

    if (!list)
        return 0;
    if (!json_is(list, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "added_tokens is not a list");
    entries = mem_calloc(list->n + 1, sizeof(*entries));
    for (uint32_t i = 0; i < list->n && rc == 0; i++)
        if (load_added_token(t, &list->items[i], &entries[i], &cause) < 0)
            rc = err_set(e, cause.kind, "added_tokens[%u]: %s", i, cause.text);
    if (rc == 0)
        rc = added_init(&t->added, entries, list->n, &t->vocab, e);
    if (rc == 0)
        note_other_ids(t, entries, list->n);
    if (rc == 0)
        note_twice(t, entries, list->n);
    free(entries);
    return rc == 0 ? load_patterns(t, e) : -1;
}

/* --- post-processor --- */

/* Loads the ids of a special token that the template names. */
static int load_special(struct tokenizer *t, const struct json *post, struct str name,
                        struct err *e)
{
    const struct json *ids = json_get(json_get_str(json_get(post, "special_tokens"), name), "ids");

    if (!json_is(ids, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "post_processor: a special token of the template is unknown");
    for (uint32_t i = 0; i < ids->n; i++) {
        int64_t id;

        if (json_to_i64(&ids->items[i], &id) < 0 || id < 0 || id > VOCAB_ID_MAX)
            return err_set(e, ERR_CONFIG, "post_processor: a special token's id is not one");
        if (t->post.n == POST_IDS_MAX)
            return err_set(e, ERR_UNSUPPORTED, "post_processor: more than %d ids", POST_IDS_MAX);
        *vec_push(&t->post) = (int32_t)id;
    }
    return 0;
}

/* Loads a TemplateProcessing for a single text: special tokens and the text, in order. */
static int load_template(struct tokenizer *t, const struct json *post, struct err *e)
{
    const struct json *single = json_get(post, "single");

    if (!json_is(single, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "post_processor: single is not a list");
    for (uint32_t i = 0; i < single->n; i++) {
        const struct json *item = &single->items[i];
        struct str name = json_string(json_get(json_get(item, "SpecialToken"), "id"));

        if (name.p) {
            if (load_special(t, post, name, e) < 0)
                return -1;
        } else if (t->post.n == POST_IDS_MAX) {
            return err_set(e, ERR_UNSUPPORTED, "post_processor: more than %d ids", POST_IDS_MAX);
        } else if (str_eq_c(json_string(json_get(json_get(item, "Sequence"), "id")), "A")) {
            *vec_push(&t->post) = TEMPLATE_TEXT;
        } else {
            return err_set(e, ERR_CONFIG, "post_processor: an item of single is unknown");
        }
    }
    return 0;
}

/* Loads BertProcessing and RobertaProcessing: cls text sep. */
static int load_cls_sep(struct tokenizer *t, const struct json *post, struct err *e)
{
    static const char *const keys[] = {"cls", NULL, "sep"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        int64_t id = TEMPLATE_TEXT;

        if (keys[i] && (json_to_i64(json_at(json_get(post, keys[i]), 1), &id) < 0 || id < 0 ||
                        id > VOCAB_ID_MAX))
            return err_set(e, ERR_CONFIG, "post_processor: %s is not a token and its id", keys[i]);
        *vec_push(&t->post) = (int32_t)id;
    }
    return 0;
}

/* Loads at most one template. A ByteLevel here only concerns offsets. */
static int load_post(struct tokenizer *t, const struct json *post, unsigned depth, struct err *e)
{
    const struct json *list = json_get(post, "processors");
    struct str type = config_type(post);

    if (str_eq_c(type, "ByteLevel")) /* it changes offsets only */
        return 0;
    if (str_eq_c(type, "Sequence") && json_is(list, JSON_ARRAY) && depth < CONFIG_DEPTH_MAX) {
        for (uint32_t i = 0; i < list->n; i++)
            if (load_post(t, &list->items[i], depth + 1, e) < 0)
                return -1;
        return 0;
    }
    if (t->post.n > 0)
        return err_set(e, ERR_UNSUPPORTED, "post_processor: two templates in a Sequence");
    if (str_eq_c(type, "TemplateProcessing"))
        return load_template(t, post, e);
    if (str_eq_c(type, "BertProcessing") || str_eq_c(type, "RobertaProcessing"))
        return load_cls_sep(t, post, e);
    return config_refuse("post_processor", post, e);
}

/* --- the rest --- */

/* Computes the size of the vocabulary and, for ByteLevel decoders, the bytes of every token. */
static void load_texts(struct tokenizer *t)
{
    t->vocab_size = MAX_OF(t->vocab.id_count, t->added.id_count);
    for (size_t i = 0; i < t->post.n; i++)
        t->vocab_size = MAX_OF(t->vocab_size, (size_t)(t->post.at[i] + 1));
    if (!t->decoder.byte_level)
        return;
    t->texts_at = mem_calloc(t->vocab_size + 1, sizeof(*t->texts_at));
    buf_reserve(&t->texts, t->vocab.pool.len + TEXTS_BEHIND);
    for (size_t id = 0; id < t->vocab_size; id++) {
        byte_level_read(tokenizer_piece(t, (int32_t)id), &t->texts);
        t->texts_at[id + 1] = (uint32_t)t->texts.len;
    }
    buf_reserve(&t->texts, TEXTS_BEHIND);
}

static void list_pattern(void *arg, const struct pattern *p)
{
    struct tokenizer *t = arg;

    if (pattern_engine(p))
        buf_printf(&t->note, "a pattern runs on %s\n", pattern_engine(p));
}

/* Collects notes on this tokenizer for an operator, one line each. */
static void load_notes(struct tokenizer *t, const struct json *root)
{
    static const char *const ignored[] = {"truncation", "padding"};

    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        if (!json_is_null(json_get(root, ignored[i])))
            buf_printf(&t->note, "%s of tokenizer.json is not applied\n", ignored[i]);
    normalizer_patterns(&t->normalizer, list_pattern, t);
    pretok_patterns(&t->pretok, list_pattern, t);
    decoder_patterns(&t->decoder, list_pattern, t);
    buf_add_c(&t->note, '\0');
}

/* Loads everything in the order described at the head of this file. */
static int load_sections(struct tokenizer *t, const struct json *root, struct err *e)
{
    const struct json *version = json_get(root, "version"), *post;

    if (!json_is(root, JSON_OBJECT))
        return err_set(e, ERR_CONFIG, "not an object");
    if (version && !str_eq_c(json_string(version), "1.0"))
        return err_set(e, ERR_UNSUPPORTED, "this version of the format is not supported");
    if (load_model(t, json_get(root, "model"), e) < 0 ||
        normalizer_parse(&t->normalizer, json_get(root, "normalizer"), e) < 0 ||
        pretok_parse(&t->pretok, json_get(root, "pre_tokenizer"), e) < 0 ||
        decoder_parse(&t->decoder, json_get(root, "decoder"), e) < 0)
        return -1;
    decide_byte_level(t);
    if (load_added(t, json_get(root, "added_tokens"), e) < 0)
        return -1;
    post = json_get(root, "post_processor");
    if (!json_is_null(post) && load_post(t, post, 0, e) < 0)
        return -1;
    if (t->post.n == 0)
        *vec_push(&t->post) = TEMPLATE_TEXT;
    load_texts(t);
    load_notes(t, root);
    t->fingerprint = tokenizer_fingerprint_of(t, root);
    return 0;
}

/* Memory of the JSON tree per byte of the file: merges as pairs need ten times their size in the
 * file. */
enum { TREE_A_BYTE = 16, TREE_LEAST = 64 << 20 };

/* Text that is not JSON is an error of the configuration. */
int tokenizer_parse(struct str json, struct tokenizer **ret, struct err *e)
{
    struct arena tree = {.max_bytes = TREE_LEAST + json.len * TREE_A_BYTE};
    struct tokenizer *t = mem_zalloc(sizeof(*t));
    const struct json *root;
    int rc = json_parse(&tree, json, &root, e);

    if (rc == 0)
        rc = load_sections(t, root, e);
    else if (e->kind != ERR_CANCELLED)
        e->kind = ERR_CONFIG;
    if (rc < 0 && e->kind == ERR_INVALID) /* the budget is exhausted */
        e->kind = ERR_UNSUPPORTED;
    arena_done(&tree);
    if (rc < 0) {
        tokenizer_free(t);
        return -1;
    }
    tokenizer_measure(t);
    *ret = t;
    return 0;
}
