/* The normalizer (normalizer.h): parses its configuration into a flat list of steps, and applies
 * them. Each step reads the text of the one before and writes to the other of two scratch buffers.
 * A step that changes nothing, or only cuts (Strip), leaves the text in its buffer.
 *
 * Each step also maintains *head, the number of leading bytes that the library aligns to the very
 * start of the original. One step of the pre_tokenizer depends on that number, so it follows the
 * library's alignments even where these look wrong. */

#include "worker/text/tokens/normalizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/budget.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/charsmap.h"
#include "worker/text/tokens/normal_form.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/tokenizer_config.h"
#include "worker/text/tokens/unicode.h"

enum normalizer_step_kind {
    STEP_FORM,
    STEP_LOWERCASE,
    STEP_STRIP,
    STEP_STRIP_ACCENTS,
    STEP_PREPEND,
    STEP_REPLACE,
    STEP_BYTE_LEVEL,
    STEP_PRECOMPILED,
};

struct normalizer_step {
    enum normalizer_step_kind kind;
    const char *type; /* name of the step in the file */
    enum normal_form form;
    bool left, right;
    char *content; /* text to prepend or to insert as a replacement */
    size_t content_len;
    struct pattern *pattern;
    struct charsmap *charsmap;
};

/* --- parsing --- */

static int parse_step(struct normalizer *n, const struct json *v, unsigned depth, struct err *e);

/* Adds the steps of a Sequence, in order, to the flat list. */
static int parse_normalizer_sequence(struct normalizer *n, const struct json *v, unsigned depth,
                                     struct err *e)
{
    const struct json *list = json_get(v, "normalizers");

    if (!json_is(list, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "normalizer Sequence: normalizers is not a list");
    for (size_t i = 0; i < list->n; i++)
        if (parse_step(n, json_at(list, i), depth + 1, e) < 0)
            return -1;
    return 0;
}

/* Copies a text of the configuration. */
static int parse_content(struct normalizer_step *step, const struct json *v, const char *key,
                         struct err *e)
{
    struct str text;

    if (config_string(v, key, &text, e) < 0)
        return -1;
    step->content = mem_strndup(text.p, text.len);
    step->content_len = text.len;
    return 0;
}

/* Parses SentencePiece's compiled rules. */
static int parse_charsmap(struct normalizer_step *step, const struct json *v, struct err *e)
{
    struct str base64;

    if (config_string(v, "precompiled_charsmap", &base64, e) < 0)
        return -1;
    step->charsmap = mem_zalloc(sizeof(*step->charsmap));
    return charsmap_parse(step->charsmap, base64, e);
}

/* Parses the options of the step's kind. */
static int parse_normalizer_options(struct normalizer_step *step, const struct json *v,
                                    struct err *e)
{
    switch (step->kind) {
    case STEP_STRIP:
        if (config_bool(v, "strip_left", -1, &step->left, e) < 0)
            return -1;
        return config_bool(v, "strip_right", -1, &step->right, e);
    case STEP_PREPEND:
        if (parse_content(step, v, "prepend", e) < 0)
            return -1;
        /* an empty content: the library's behaviour depends on the text */
        if (step->content_len == 0)
            return err_set(e, ERR_UNSUPPORTED, "normalizer Prepend of nothing is not supported");
        return 0;
    case STEP_REPLACE:
        if (parse_content(step, v, "content", e) < 0)
            return -1;
        return config_pattern(v, &step->pattern, e);
    case STEP_PRECOMPILED:
        return parse_charsmap(step, v, e);
    default:
        return 0;
    }
}

/* Adds one step. An unknown one is refused by name. */
static int parse_step(struct normalizer *n, const struct json *v, unsigned depth, struct err *e)
{
    static const struct {
        const char *type;
        enum normalizer_step_kind kind;
        enum normal_form form;
    } known[] = {
        {"NFC", STEP_FORM, NORMAL_C},
        {"NFD", STEP_FORM, NORMAL_D},
        {"NFKC", STEP_FORM, NORMAL_KC},
        {"NFKD", STEP_FORM, NORMAL_KD},
        {"Lowercase", STEP_LOWERCASE, NORMAL_C},
        {"Strip", STEP_STRIP, NORMAL_C},
        {"StripAccents", STEP_STRIP_ACCENTS, NORMAL_C},
        {"Prepend", STEP_PREPEND, NORMAL_C},
        {"Replace", STEP_REPLACE, NORMAL_C},
        {"ByteLevel", STEP_BYTE_LEVEL, NORMAL_C},
        {"Precompiled", STEP_PRECOMPILED, NORMAL_C},
    };
    struct str type = config_type(v);

    if (n->n == NORMALIZER_STEPS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "normalizer: more than %d steps are not supported",
                       NORMALIZER_STEPS_MAX);
    if (str_eq_c(type, "Sequence") && depth < CONFIG_DEPTH_MAX)
        return parse_normalizer_sequence(n, v, depth, e);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (!str_eq_c(type, known[i].type))
            continue;
        *vec_push(n) = (struct normalizer_step){
            .kind = known[i].kind, .type = known[i].type, .form = known[i].form};
        return parse_normalizer_options(&vec_last(n), v, e);
    }
    return config_refuse("normalizer", v, e);
}

int normalizer_parse(struct normalizer *n, const struct json *v, struct err *e)
{
    *n = (struct normalizer){0};
    if (json_is_null(v))
        return 0;
    if (parse_step(n, v, 0, e) < 0) {
        normalizer_done(n);
        return -1;
    }
    return 0;
}

bool normalizer_only_composes(const struct normalizer *n)
{
    return n->n == 0 || (n->n == 1 && n->at[0].kind == STEP_FORM && n->at[0].form == NORMAL_C);
}

void normalizer_done(struct normalizer *n)
{
    for (size_t i = 0; i < n->n; i++) {
        free(n->at[i].content);
        pattern_free(n->at[i].pattern);
        if (n->at[i].charsmap)
            charsmap_done(n->at[i].charsmap);
        free(n->at[i].charsmap);
    }
    vec_done(n);
}

void normalizer_patterns(const struct normalizer *n, void (*see)(void *, const struct pattern *),
                         void *arg)
{
    for (size_t i = 0; i < n->n; i++)
        if (n->at[i].pattern)
            see(arg, n->at[i].pattern);
}

void normalizer_scratch_done(struct normalizer_scratch *s)
{
    buf_done(&s->bufs[0]);
    buf_done(&s->bufs[1]);
}

/* --- applying: each function appends to out and maintains *head --- */

/* Appends one character in lower case, which may be several characters. */
static void lowercase_char(uint32_t cp, struct str bytes, struct buf *out)
{
    const struct unicode_mapping *map = NULL;

    if (unicode_flags(cp) & UC_LOWER)
        map = unicode_map(unicode_lower, unicode_lower_count, cp);
    if (!map) {
        buf_add_str(out, bytes);
        return;
    }
    for (size_t i = 0; i < map->n; i++) {
        char c[4];
        size_t n = utf8_encode(c, unicode_lower_pool[map->at + i]);

        buf_add(out, c, n);
    }
}

/* Applies Lowercase and StripAccents, character by character. */
static void map_chars(const struct normalizer_step *step, struct str text, size_t *head,
                      struct buf *out)
{
    size_t old = *head;

    *head = 0;
    for (size_t i = 0; i < text.len;) {
        uint32_t cp;
        size_t n = unicode_read(text.p + i, &cp);

        if (step->kind == STEP_LOWERCASE)
            lowercase_char(cp, str_sub(text, i, n), out);
        else if (!(unicode_flags(cp) & UC_MARK))
            buf_add(out, text.p + i, n);
        i += n;
        if (i <= old)
            *head = out->len;
    }
}

/* Cuts white space at the configured ends. */
static void strip_blanks(const struct normalizer_step *step, struct str *text, size_t *head)
{
    size_t from = 0, to = text->len, n;
    uint32_t cp;

    while (step->left && from < to) {
        n = unicode_read(text->p + from, &cp);
        if (!(unicode_flags(cp) & UC_SPACE))
            break;
        from += n;
    }
    while (step->right && to > from) {
        n = unicode_read_back(text->p + to, &cp);
        if (!(unicode_flags(cp) & UC_SPACE))
            break;
        to -= n;
    }
    *text = str_sub(*text, from, to - from);
    *head = MIN_OF(*head > from ? *head - from : 0, text->len);
}

/* An empty text stays empty. */
static void prepend_text(const struct normalizer_step *step, struct str text, size_t *head,
                         struct buf *out)
{
    if (text.len == 0)
        return;
    if (*head > 0)
        *head += step->content_len;
    buf_add(out, step->content, step->content_len);
    buf_add_str(out, text);
}

enum { MATCH_STEPS = 8 };

/* Replaces each match. The library aligns the replacement to the match's last byte. */
static int replace_matches(const struct normalizer_step *step, struct normalizer_scratch *s,
                           struct str text, size_t *head, struct buf *out)
{
    struct budget *budget = regex_scratch_budget(s->regex);
    struct pattern_walk w = {.text = text};
    size_t done = 0, old = *head, new_head = SIZE_MAX;
    int rc;

    while ((rc = pattern_next(step->pattern, s->regex, &w)) == 1) {
        if (new_head == SIZE_MAX && (w.start >= old || w.end > old))
            new_head = out->len + (MIN_OF(old, w.start) - done);
        if (!budget_spend(budget, step->content_len / 64 + MATCH_STEPS) ||
            !budget_fits(budget, out->len + (w.start - done) + step->content_len))
            return -1;
        buf_add(out, text.p + done, w.start - done);
        buf_add(out, step->content, step->content_len);
        done = w.end;
    }
    if (new_head == SIZE_MAX)
        new_head = out->len + (old > done ? old - done : 0);
    buf_add(out, text.p + done, text.len - done);
    *head = new_head;
    return rc;
}

/* Applies the normal form. The new head is the length of the old head normalised alone. */
static void normal_form(const struct normalizer_step *step, struct str text, size_t *head,
                        struct buf *out)
{
    normal_form_apply(step->form, str_sub(text, 0, *head), out);
    *head = out->len;
    buf_clear(out);
    normal_form_apply(step->form, text, out);
    *head = MIN_OF(*head, out->len);
}

static void byte_level(struct str text, size_t *head, struct buf *out)
{
    byte_level_write(str_sub(text, 0, *head), out);
    *head = out->len;
    buf_clear(out);
    byte_level_write(text, out);
}

/* Returns 1: out has the changed text; 0: text is unchanged or only cut; -1. */
static int apply_step(const struct normalizer_step *step, struct normalizer_scratch *s,
                      struct str *text, size_t *head, struct buf *out)
{
    switch (step->kind) {
    case STEP_STRIP:
        strip_blanks(step, text, head);
        return 0;
    case STEP_FORM:
        if (normal_form_holds(step->form, *text))
            return 0;
        normal_form(step, *text, head, out);
        return 1;
    case STEP_PREPEND:
        prepend_text(step, *text, head, out);
        return 1;
    case STEP_REPLACE:
        return replace_matches(step, s, *text, head, out) < 0 ? -1 : 1;
    case STEP_BYTE_LEVEL:
        byte_level(*text, head, out);
        return 1;
    case STEP_PRECOMPILED:
        return charsmap_apply(step->charsmap, *text, regex_scratch_budget(s->regex), head, out);
    default:
        map_chars(step, *text, head, out);
        return 1;
    }
}

/* Runs a step, and counts its cost and the memory that it added. */
static int run_step(const struct normalizer_step *step, struct normalizer_scratch *s,
                    struct str *text, size_t *head, struct buf *out)
{
    struct budget *budget = regex_scratch_budget(s->regex);
    bool counts = step->kind == STEP_REPLACE || step->kind == STEP_PRECOMPILED;
    size_t had = out->cap;
    int rc = -1;

    if (budget_spend(budget, text->len / 16 + 1) &&
        budget_fits(budget, counts ? 0 : text->len + step->content_len))
        rc = apply_step(step, s, text, head, out);
    return budget_hold(budget, out->cap - had) && !budget->over ? rc : -1;
}

/* At the end the text is in one of the buffers, or where it was. */
int normalizer_apply(const struct normalizer *n, struct normalizer_scratch *s, struct str *text,
                     size_t *head, struct err *e)
{
    unsigned next = 0;

    for (size_t i = 0; i < n->n; i++) {
        struct buf *out = &s->bufs[next];
        int rc;

        buf_clear(out);
        rc = run_step(&n->at[i], s, text, head, out);
        if (rc < 0) {
            char part[96];

            (void)snprintf(part, sizeof(part), "tokenizer.json, normalizer: step %zu (%s)", i + 1,
                           n->at[i].type);
            return budget_fail(regex_scratch_budget(s->regex), part, e);
        }
        if (rc == 1) {
            *text = buf_str(out);
            next = !next;
        }
    }
    return 0;
}
