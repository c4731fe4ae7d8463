/* The pre_tokenizer (pretok.h): parses its configuration into stages, and passes text through them
 * depth first. A stage that cuts calls the next one for each fragment. A stage that rewrites has a
 * buffer of its own for the present fragment. So memory is limited by the longest piece, and no
 * list of pieces is made.
 *
 * A Split passes matches and the text between them to split_span(), in order. Its behavior says
 * which of them are joined:
 *
 *   "a-b" split at "-"   Removed             a | b
 *                        Isolated            a | - | b
 *                        MergedWithPrevious  a- | b
 *                        MergedWithNext      a | -b
 *                        Contiguous          as Isolated, neighbouring matches joined */

#include "worker/text/tokens/pretok.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/budget.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/split_family.h"
#include "worker/text/tokens/tokenizer_config.h"
#include "worker/text/tokens/unicode.h"

enum stage_kind { STAGE_SPLIT, STAGE_PREFIX, STAGE_BYTE_LEVEL, STAGE_METASPACE };

enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

enum prepend_scheme { PREPEND_FIRST, PREPEND_NEVER, PREPEND_ALWAYS };

struct pretok_stage {
    enum stage_kind kind;
    struct pattern *pattern;
    const struct split_family
        *family; /* family of an Isolated Split that has a hand-written matcher, or NULL */
    enum behavior behavior;
    bool invert;
    enum prepend_scheme scheme;
    char replacement[4];
    size_t replacement_len;
};

/* --- parsing --- */

static int parse_stage(struct pretok *p, const struct json *v, unsigned depth, struct err *e);

static void add_split(struct pretok *p, struct pattern *pattern, enum behavior behavior)
{
    *vec_push(p) =
        (struct pretok_stage){.kind = STAGE_SPLIT,
                              .pattern = pattern,
                              .family = behavior == ISOLATED ? pattern_family(pattern) : NULL,
                              .behavior = behavior};
}

/* Parses the name of a behavior. */
static int parse_behavior(const struct json *v, enum behavior *ret, struct err *e)
{
    static const char *const names[] = {[REMOVED] = "Removed",
                                        [ISOLATED] = "Isolated",
                                        [MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [MERGED_WITH_NEXT] = "MergedWithNext",
                                        [CONTIGUOUS] = "Contiguous"};
    struct str name;

    if (config_string(v, "behavior", &name, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq_c(name, names[i])) {
            *ret = (enum behavior)i;
            return 0;
        }
    }
    return err_set(e, ERR_CONFIG, "behavior: unknown");
}

/* Parses ByteLevel, which is up to three stages: a blank in front, GPT-2's split, the byte
 * alphabet. */
static int parse_byte_level(struct pretok *p, const struct json *v, struct err *e)
{
    bool prefix, use_regex;

    if (config_bool(v, "add_prefix_space", -1, &prefix, e) < 0 ||
        config_bool(v, "use_regex", true, &use_regex, e) < 0)
        return -1;
    if (prefix)
        *vec_push(p) = (struct pretok_stage){.kind = STAGE_PREFIX};
    if (use_regex)
        add_split(p, pattern_gpt2(), ISOLATED);
    *vec_push(p) = (struct pretok_stage){.kind = STAGE_BYTE_LEVEL};
    return 0;
}

/* Parses a pattern, a behavior, and whether matches and the text between them are exchanged. */
static int parse_split(struct pretok *p, const struct json *v, struct err *e)
{
    struct pattern *pattern;
    enum behavior behavior;
    bool invert;

    if (parse_behavior(v, &behavior, e) < 0 || config_bool(v, "invert", -1, &invert, e) < 0 ||
        config_pattern(v, &pattern, e) < 0)
        return -1;
    add_split(p, pattern, behavior);
    vec_last(p).invert = invert;
    return 0;
}

/* Parses Digits: numerals one by one or in runs. */
static int parse_digits(struct pretok *p, const struct json *v, struct err *e)
{
    bool individual;

    if (config_bool(v, "individual_digits", -1, &individual, e) < 0)
        return -1;
    add_split(p, pattern_char(UC_NUMERIC), individual ? ISOLATED : CONTIGUOUS);
    return 0;
}

/* Parses Punctuation, which is isolated unless the file says otherwise. */
static int parse_punctuation(struct pretok *p, const struct json *v, struct err *e)
{
    enum behavior behavior = ISOLATED;

    if (json_get(v, "behavior") && parse_behavior(v, &behavior, e) < 0)
        return -1;
    add_split(p, pattern_char(UC_PUNCTUATION), behavior);
    return 0;
}

/* Parses Whitespace: words are kept and the text between is dropped, so the pattern is inverted. */
static int parse_whitespace(struct pretok *p, const struct json *v, struct err *e)
{
    (void)v;
    (void)e;
    add_split(p, pattern_words(), REMOVED);
    vec_last(p).invert = true;
    return 0;
}

static int parse_whitespace_split(struct pretok *p, const struct json *v, struct err *e)
{
    (void)v;
    (void)e;
    add_split(p, pattern_char(UC_SPACE), REMOVED);
    return 0;
}

/* Parses BertPreTokenizer: white space is dropped, punctuation is isolated. */
static int parse_bert(struct pretok *p, const struct json *v, struct err *e)
{
    (void)v;
    (void)e;
    add_split(p, pattern_char(UC_SPACE), REMOVED);
    add_split(p, pattern_char(UC_PUNCTUATION), ISOLATED);
    return 0;
}

/* Parses a cut at one character, which is dropped. */
static int parse_delimiter(struct pretok *p, const struct json *v, struct err *e)
{
    struct str delimiter;

    if (config_char(v, "delimiter", &delimiter, e) < 0)
        return -1;
    add_split(p, pattern_literal(delimiter), REMOVED);
    return 0;
}

/* Parses where Metaspace prepends its mark. The library's default is "always". */
static int parse_scheme(const struct json *v, enum prepend_scheme *ret, struct err *e)
{
    const struct json *scheme = json_get(v, "prepend_scheme");
    struct str name = json_string(scheme);

    *ret = PREPEND_ALWAYS;
    if (!scheme || str_eq_c(name, "always"))
        return 0;
    if (str_eq_c(name, "first"))
        *ret = PREPEND_FIRST;
    else if (str_eq_c(name, "never"))
        *ret = PREPEND_NEVER;
    else
        return err_set(e, ERR_CONFIG, "Metaspace: prepend_scheme is unknown");
    return 0;
}

/* Parses Metaspace: blanks become marks. With `split`, words begin at marks. */
static int parse_metaspace(struct pretok *p, const struct json *v, struct err *e)
{
    struct pretok_stage stage = {.kind = STAGE_METASPACE};
    bool prefix = true, split = true;
    struct str replacement;

    if (config_char(v, "replacement", &replacement, e) < 0 || parse_scheme(v, &stage.scheme, e) < 0)
        return -1;
    if (!json_is_null(json_get(v, "add_prefix_space")) &&
        config_bool(v, "add_prefix_space", -1, &prefix, e) < 0)
        return -1;
    if (!json_is_null(json_get(v, "split")) && config_bool(v, "split", -1, &split, e) < 0)
        return -1;
    if (!prefix && stage.scheme != PREPEND_NEVER)
        return err_set(e, ERR_CONFIG,
                       "Metaspace: add_prefix_space does not match the prepend_scheme");
    memcpy(stage.replacement, replacement.p, replacement.len);
    stage.replacement_len = replacement.len;
    *vec_push(p) = stage;
    if (split)
        add_split(p, pattern_literal(replacement), MERGED_WITH_NEXT);
    return 0;
}

/* Adds the stages of a Sequence, in order, to the flat list. */
static int parse_stages(struct pretok *p, const struct json *v, unsigned depth, struct err *e)
{
    const struct json *list = json_get(v, "pretokenizers");

    if (!json_is(list, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "pre_tokenizer Sequence: pretokenizers is not a list");
    for (size_t i = 0; i < list->n; i++)
        if (parse_stage(p, json_at(list, i), depth + 1, e) < 0)
            return -1;
    return 0;
}

/* Adds one pre_tokenizer. An unknown one is refused by name. */
static int parse_stage(struct pretok *p, const struct json *v, unsigned depth, struct err *e)
{
    static const struct {
        const char *type;
        int (*parse)(struct pretok *p, const struct json *v, struct err *e);
    } known[] = {
        {"ByteLevel", parse_byte_level},  {"Split", parse_split},
        {"Digits", parse_digits},         {"Punctuation", parse_punctuation},
        {"Whitespace", parse_whitespace}, {"WhitespaceSplit", parse_whitespace_split},
        {"BertPreTokenizer", parse_bert}, {"CharDelimiterSplit", parse_delimiter},
        {"Metaspace", parse_metaspace},
    };
    struct str type = config_type(v);

    if (p->n >= PRETOK_STAGES_MAX)
        return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer: more than %d stages are not supported",
                       PRETOK_STAGES_MAX);
    if (str_eq_c(type, "Sequence") && depth < CONFIG_DEPTH_MAX)
        return parse_stages(p, v, depth, e);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_eq_c(type, known[i].type))
            return known[i].parse(p, v, e);
    return config_refuse("pre_tokenizer", v, e);
}

/* A ByteLevel at the end is stored after the list, for pretok_keep_byte_level. */
int pretok_parse(struct pretok *p, const struct json *v, struct err *e)
{
    *p = (struct pretok){0};
    if (json_is_null(v))
        return 0;
    if (parse_stage(p, v, 0, e) < 0) {
        pretok_done(p);
        return -1;
    }
    if (p->n > 0 && vec_last(p).kind == STAGE_BYTE_LEVEL) {
        p->byte_level_last = true;
        p->n--;
    }
    return 0;
}

bool pretok_keeps_all(const struct pretok *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].kind == STAGE_SPLIT && p->at[i].behavior == REMOVED)
            return false;
    return true;
}

void pretok_keep_byte_level(struct pretok *p)
{
    if (p->byte_level_last)
        p->n++;
    p->byte_level_last = false;
}

void pretok_done(struct pretok *p)
{
    for (size_t i = 0; i < p->n; i++)
        pattern_free(p->at[i].pattern);
    vec_done(p);
}

void pretok_patterns(const struct pretok *p, void (*see)(void *, const struct pattern *), void *arg)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].pattern)
            see(arg, p->at[i].pattern);
}

void pretok_scratch_init(struct pretok_scratch *s, const struct pretok *p,
                         struct regex_scratch *regex)
{
    *s = (struct pretok_scratch){.n = p->n, .regex = regex};
    s->bufs = mem_calloc(p->n + 1, sizeof(*s->bufs));
}

void pretok_scratch_done(struct pretok_scratch *s)
{
    for (size_t i = 0; i < s->n; i++)
        buf_done(&s->bufs[i]);
    free(s->bufs);
}

/* --- running --- */

struct pretok_run {
    const struct pretok *pretok;
    struct pretok_scratch *scratch;
    int (*word)(void *arg, struct str word, struct err *e);
    void *arg;
    struct err *e;
};

static int run_stage(struct pretok_run *r, size_t at, struct pretok_piece piece);

static int fail_stage(const struct pretok_run *r, size_t at)
{
    char part[64];

    (void)snprintf(part, sizeof(part), "tokenizer.json, pre_tokenizer: stage %zu", at + 1);
    return budget_fail(regex_scratch_budget(r->scratch->regex), part, r->e);
}

/* Passes [start, end) of the piece to the next stage. */
static inline int pass_on(struct pretok_run *r, size_t at, const struct pretok_piece *piece,
                          size_t start, size_t end)
{
    struct pretok_piece part = {str_of(piece->text.p + start, end - start), 0};

    if (start == end)
        return 0;
    if (at + 1 == r->pretok->n)
        return r->word(r->arg, part.text, r->e);
    part.head = piece->head > start ? MIN_OF(piece->head - start, end - start) : 0;
    return run_stage(r, at + 1, part);
}

/* State of one Split over one piece: a fragment is held, because it may still grow. */
struct splitter {
    struct pretok_run *run;
    size_t at;
    const struct pretok_piece *piece;
    enum behavior behavior;
    bool held, was_match;
    size_t start, end; /* bounds of the held fragment */
};

static int release_span(struct splitter *s)
{
    bool held = s->held;

    s->held = false;
    return held ? pass_on(s->run, s->at, s->piece, s->start, s->end) : 0;
}

/* Passes on the held fragment and holds this one, which may still grow. */
static int hold_span(struct splitter *s, size_t start, size_t end)
{
    if (release_span(s) < 0)
        return -1;
    s->held = true;
    s->start = start;
    s->end = end;
    return 0;
}

/* Handles a match or the text between two matches, in order. */
static int split_span(struct splitter *s, size_t start, size_t end, bool match)
{
    bool was_match = s->was_match;

    s->was_match = match;
    switch (s->behavior) {
    case REMOVED:
        return match ? 0 : pass_on(s->run, s->at, s->piece, start, end);
    case ISOLATED:
        return pass_on(s->run, s->at, s->piece, start, end);
    case MERGED_WITH_PREVIOUS:
        if (match && !was_match && s->held) {
            s->end = end;
            return 0;
        }
        return hold_span(s, start, end);
    case MERGED_WITH_NEXT:
        if (!match && was_match && s->held) {
            s->end = end;
            return release_span(s);
        }
        if (match)
            return hold_span(s, start, end);
        return release_span(s) < 0 ? -1 : pass_on(s->run, s->at, s->piece, start, end);
    default:
        if (match == was_match && s->held) {
            s->end = end;
            return 0;
        }
        return hold_span(s, start, end);
    }
}

/* Does run_split for the Split that most models have: matches and the text between are passed on
 * alike, and no match of a family is empty. */
static int run_family(struct pretok_run *r, size_t at, const struct pretok_piece *piece)
{
    const struct split_family *family = r->pretok->at[at].family;
    struct str text = piece->text;
    size_t done = 0, from = 0;

    while (from < text.len) {
        size_t end = family_match(family, text, from);

        if (RG_UNLIKELY(end == SIZE_MAX)) {
            from += unicode_len(text.p[from]);
            continue;
        }
        if (pass_on(r, at, piece, done, from) < 0 || pass_on(r, at, piece, from, end) < 0)
            return -1;
        done = from = end;
    }
    return pass_on(r, at, piece, done, text.len);
}

/* Runs one Split over one piece. */
static int run_split(struct pretok_run *r, size_t at, struct pretok_piece piece)
{
    const struct pretok_stage *stage = &r->pretok->at[at];
    struct splitter s = {.run = r, .at = at, .piece = &piece, .behavior = stage->behavior};
    struct pattern_walk w = {.text = piece.text};
    size_t done = 0;
    int rc;

    while ((rc = pattern_next(stage->pattern, r->scratch->regex, &w)) == 1) {
        if (!budget_spend(regex_scratch_budget(r->scratch->regex), 1))
            return fail_stage(r, at);
        if (w.start != done && split_span(&s, done, w.start, stage->invert) < 0)
            return -1;
        if (split_span(&s, w.start, w.end, !stage->invert) < 0)
            return -1;
        done = w.end;
    }
    if (rc < 0)
        return fail_stage(r, at);
    if (done != piece.text.len && split_span(&s, done, piece.text.len, stage->invert) < 0)
        return -1;
    return release_span(&s);
}

/* Writes a blank in front, unless there is one. */
static void write_prefixed(struct pretok_piece *piece, struct buf *out)
{
    if (piece->text.p[0] == ' ')
        return;
    buf_clear(out);
    buf_add_c(out, ' ');
    buf_add_str(out, piece->text);
    piece->text = buf_str(out);
    piece->head += piece->head > 0;
}

/* Rewrites the piece in the alphabet. The head is rewritten first, to learn its length. */
static void write_byte_level(struct pretok_piece *piece, struct buf *out)
{
    size_t head;

    buf_clear(out);
    byte_level_write(str_sub(piece->text, 0, piece->head), out);
    head = out->len;
    byte_level_write(str_sub(piece->text, piece->head, piece->text.len), out);
    piece->text = buf_str(out);
    piece->head = head;
}

/* Rewrites blanks to the mark, and prepends one depending on the scheme. */
static void write_metaspace(const struct pretok_stage *stage, struct pretok_piece *piece,
                            struct buf *out)
{
    struct str replacement = str_of(stage->replacement, stage->replacement_len);
    bool first = piece->text.p[0] == ' ' || str_starts(piece->text, replacement);
    size_t head = 0;

    buf_clear(out);
    if (!first &&
        (stage->scheme == PREPEND_ALWAYS || (stage->scheme == PREPEND_FIRST && piece->head > 0)))
        buf_add_str(out, replacement);
    for (size_t i = 0; i < piece->text.len; i++) {
        if (piece->text.p[i] == ' ')
            buf_add_str(out, replacement);
        else
            buf_add_c(out, piece->text.p[i]);
        if (i < piece->head)
            head = out->len;
    }
    piece->text = buf_str(out);
    piece->head = head;
}

/* Largest growth of text in a rewriting stage: U+2581 for each blank, two bytes for each byte. */
enum { STAGE_GROWTH = 3 };

/* Passes the piece to stage `at`, or to the caller after the last one. */
static int run_stage(struct pretok_run *r, size_t at, struct pretok_piece piece)
{
    struct budget *budget = regex_scratch_budget(r->scratch->regex);
    const struct pretok_stage *stage;
    struct buf *out;
    size_t had;

    if (piece.text.len == 0)
        return 0;
    if (at == r->pretok->n)
        return r->word(r->arg, piece.text, r->e);
    stage = &r->pretok->at[at];
    out = &r->scratch->bufs[at];
    if (stage->kind == STAGE_SPLIT)
        return stage->family ? run_family(r, at, &piece) : run_split(r, at, piece);
    had = out->cap;
    if (!budget_spend(budget, piece.text.len / 16 + 1) ||
        !budget_fits(budget, (uint64_t)piece.text.len * STAGE_GROWTH))
        return fail_stage(r, at);
    switch (stage->kind) {
    case STAGE_PREFIX:
        write_prefixed(&piece, out);
        break;
    case STAGE_BYTE_LEVEL:
        write_byte_level(&piece, out);
        break;
    case STAGE_METASPACE:
        write_metaspace(stage, &piece, out);
        break;
    default:
        break;
    }
    if (!budget_hold(budget, out->cap - had))
        return fail_stage(r, at);
    return run_stage(r, at + 1, piece);
}

int pretok_run(const struct pretok *p, struct pretok_scratch *s, struct pretok_piece piece,
               int (*word)(void *arg, struct str word, struct err *e), void *arg, struct err *e)
{
    struct pretok_run r = {.pretok = p, .scratch = s, .word = word, .arg = arg, .e = e};

    return run_stage(&r, 0, piece);
}
