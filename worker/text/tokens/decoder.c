/* The decoder (decoder.h). The steps form a pipe. put_token() passes a token or fragment to step
 * `at`, which calls put_token() for the next step with its result. After the last step the text is
 * appended to g->out. Bytes that a step cannot decode yet wait in its `held`:
 *
 *   ByteLevel      the bytes of an unfinished character
 *   ByteFallback   a run of <0xNN> bytes
 *   Strip (fused)  trailing characters that may be the end
 *   BPEDecoder     the last token, whose suffix is dropped at the end
 *   any fused step that needs the whole text: all of it
 *
 * decoding_finish ends the steps from the first to the last, so that released bytes pass the later
 * steps. */

#include "worker/text/tokens/decoder.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "common/codec/hex.h"
#include "common/codec/json.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/tokenizer_config.h"
#include "worker/text/tokens/unicode.h"

/* Limits that are checked at loading, because a decoder cannot fail. */
enum {
    DECODER_STEPS_MAX = 256,
    STRIP_MAX = 1024,  /* characters that are examined again for each token */
    GROWTH_MAX = 4096, /* bytes that all Replace steps together may make of one */
};

#define REPLACEMENT "\xef\xbf\xbd"

enum decoder_step_kind {
    STEP_BYTE_LEVEL,
    STEP_BYTE_FALLBACK,
    STEP_FUSE,
    STEP_STRIP,
    STEP_REPLACE,
    STEP_METASPACE,
    STEP_SUFFIX, /* BPEDecoder */
    STEP_JOIN,   /* no decoder: tokens are joined with blanks */
};

struct decoder_step {
    enum decoder_step_kind kind;
    bool fused; /* the step gets fragments of one token, not tokens */
    struct pattern *pattern;
    char *content;
    size_t content_len;
    uint32_t start, stop; /* for STEP_STRIP */
    bool first_dropped;   /* for STEP_METASPACE: the first token loses its marks */
};

/* --- parsing --- */

static int parse_step(struct decoder *d, const struct json *v, unsigned depth, struct err *e);

/* Adds the steps of a Sequence, in order, to the flat list. */
static int parse_decoder_sequence(struct decoder *d, const struct json *v, unsigned depth,
                                  struct err *e)
{
    const struct json *list = json_get(v, "decoders");

    if (!json_is(list, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "decoder Sequence: decoders is not a list");
    for (size_t i = 0; i < list->n; i++)
        if (parse_step(d, json_at(list, i), depth + 1, e) < 0)
            return -1;
    return 0;
}

static void keep_content(struct decoder_step *step, struct str content)
{
    step->content = mem_strndup(content.p, content.len);
    step->content_len = content.len;
}

/* Parses Metaspace: the mark becomes a blank. The first token loses its marks unless the scheme is
 * "never". */
static int parse_metaspace(struct decoder_step *step, const struct json *v, struct err *e)
{
    struct str replacement, scheme = json_string(json_get(v, "prepend_scheme"));

    if (config_char(v, "replacement", &replacement, e) < 0)
        return -1;
    keep_content(step, replacement);
    step->first_dropped = !str_eq_c(scheme, "never");
    return 0;
}

/* Parses the stripped character, and its limits at the front and the end of a token. */
static int parse_strip(struct decoder_step *step, const struct json *v, struct err *e)
{
    struct str content;

    if (config_char(v, "content", &content, e) < 0 ||
        config_uint(v, "start", STRIP_MAX, &step->start, e) < 0 ||
        config_uint(v, "stop", STRIP_MAX, &step->stop, e) < 0)
        return -1;
    keep_content(step, content);
    return 0;
}

/* Parses a pattern and its replacement. */
static int parse_replace(struct decoder_step *step, const struct json *v, struct err *e)
{
    struct str content;

    if (config_string(v, "content", &content, e) < 0)
        return -1;
    keep_content(step, content);
    return config_pattern(v, &step->pattern, e);
}

/* Parses the suffix that ends a word. */
static int parse_suffix(struct decoder_step *step, const struct json *v, struct err *e)
{
    struct str suffix;

    if (config_string(v, "suffix", &suffix, e) < 0)
        return -1;
    if (suffix.len == 0)
        return err_set(e, ERR_UNSUPPORTED, "decoder BPEDecoder with an empty suffix");
    step->pattern = pattern_literal(suffix);
    return 0;
}

/* Parses the options of the step's kind. */
static int parse_decoder_options(struct decoder_step *step, const struct json *v, struct err *e)
{
    switch (step->kind) {
    case STEP_STRIP:
        return parse_strip(step, v, e);
    case STEP_REPLACE:
        return parse_replace(step, v, e);
    case STEP_METASPACE:
        return parse_metaspace(step, v, e);
    case STEP_SUFFIX:
        return parse_suffix(step, v, e);
    default:
        return 0;
    }
}

static bool is_fused(const struct decoder_step *step)
{
    return step->fused || step->kind == STEP_FUSE || step->kind == STEP_BYTE_LEVEL;
}

/* Adds one step. If an earlier step joins all tokens into one, the step is fused. */
static int parse_step(struct decoder *d, const struct json *v, unsigned depth, struct err *e)
{
    static const struct {
        const char *type;
        enum decoder_step_kind kind;
    } known[] = {
        {"ByteLevel", STEP_BYTE_LEVEL},
        {"ByteFallback", STEP_BYTE_FALLBACK},
        {"Fuse", STEP_FUSE},
        {"Strip", STEP_STRIP},
        {"Replace", STEP_REPLACE},
        {"Metaspace", STEP_METASPACE},
        {"BPEDecoder", STEP_SUFFIX},
    };
    struct str type = config_type(v);
    bool fused = d->n > 0 && is_fused(&vec_last(d));

    if (d->n == DECODER_STEPS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "decoder: more than %d steps are not supported",
                       DECODER_STEPS_MAX);
    if (str_eq_c(type, "Sequence") && depth < CONFIG_DEPTH_MAX)
        return parse_decoder_sequence(d, v, depth, e);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (!str_eq_c(type, known[i].type))
            continue;
        *vec_push(d) = (struct decoder_step){.kind = known[i].kind, .fused = fused};
        return parse_decoder_options(&vec_last(d), v, e);
    }
    return config_refuse("decoder", v, e);
}

/* Checks the growth by Replace steps. Each makes at most its content of each byte, or inserts it
 * between two bytes; a literal pattern replaces all its bytes at once. */
static int check_growth(const struct decoder *d, struct err *e)
{
    uint64_t growth = 1;

    for (size_t i = 0; i < d->n; i++) {
        const struct decoder_step *step = &d->at[i];
        uint64_t least = step->kind == STEP_REPLACE ? pattern_least(step->pattern) : 0;

        if (step->kind != STEP_REPLACE)
            continue;
        growth *=
            least ? MAX_OF((step->content_len + least - 1) / least, 1U) : step->content_len + 1;
        if (growth > GROWTH_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "decoder: step %zu (Replace) makes text more than %d times as long",
                           i + 1, GROWTH_MAX);
    }
    return 0;
}

/* No decoder at all joins tokens with blanks, as in the library. */
int decoder_parse(struct decoder *d, const struct json *v, struct err *e)
{
    *d = (struct decoder){0};
    if (json_is_null(v)) {
        *vec_push(d) = (struct decoder_step){.kind = STEP_JOIN};
        return 0;
    }
    if (parse_step(d, v, 0, e) < 0 || check_growth(d, e) < 0) {
        decoder_done(d);
        return -1;
    }
    d->byte_level = d->n == 1 && d->at[0].kind == STEP_BYTE_LEVEL;
    return 0;
}

void decoder_done(struct decoder *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->at[i].content);
        pattern_free(d->at[i].pattern);
    }
    vec_done(d);
}

void decoder_patterns(const struct decoder *d, void (*see)(void *, const struct pattern *),
                      void *arg)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->at[i].pattern)
            see(arg, d->at[i].pattern);
}

/* --- running --- */

void decoding_init(struct decoding *g, const struct decoder *d)
{
    *g = (struct decoding){.decoder = d};
    g->steps = mem_calloc(d->n + 1, sizeof(*g->steps));
}

/* Frees what the steps hold. */
void decoding_done(struct decoding *g)
{
    for (size_t i = 0; i < g->decoder->n; i++) {
        buf_done(&g->steps[i].held);
        buf_done(&g->steps[i].text);
    }
    free(g->steps);
    regex_scratch_free(g->regex);
}

static void put_token(struct decoding *g, size_t at, struct str token);

static void put_step_text(struct decoding *g, size_t at)
{
    put_token(g, at + 1, buf_str(&g->steps[at].text));
}

/* Returns the length of the first maximal invalid part of s. */
static size_t broken_len(struct str s)
{
    size_t n = 1;
    uint32_t cp;

    while (n < s.len && n < 4 && utf8_decode(str_of(s.p, n), &cp) == 0)
        n++;
    /* n bytes are certainly broken, or s ends. The last byte belongs to the next character, unless
     * it is what made the start broken */
    return n > 1 && utf8_decode(str_of(s.p, n), &cp) < 0 ? n - 1 : n;
}

/* Appends the characters of s, U+FFFD for broken parts. An unfinished character at the end stays in
 * s unless `all`. */
static void write_lossy(struct str *s, bool all, struct buf *out)
{
    while (s->len > 0) {
        size_t valid = utf8_valid_len(*s);
        uint32_t cp;

        buf_add(out, s->p, valid);
        *s = str_sub(*s, valid, s->len);
        if (s->len == 0 || (!all && utf8_decode(*s, &cp) == 0))
            return;
        buf_puts(out, REPLACEMENT);
        *s = str_sub(*s, broken_len(*s), s->len);
    }
}

/* Passes on whole characters at once. (decoding_feed handles the usual token itself.) */
static void byte_level(struct decoding *g, size_t at, struct str token)
{
    struct decoding_step *step = &g->steps[at];
    struct str rest;

    if (g->decoder->byte_level)
        buf_add_str(&step->held, token);
    else
        byte_level_read(token, &step->held);
    rest = buf_str(&step->held);
    buf_clear(&step->text);
    write_lossy(&rest, false, &step->text);
    buf_consume(&step->held, step->held.len - rest.len);
    put_step_text(g, at);
}

/* Ends a held run of bytes: passes on its text if it is UTF-8, else U+FFFD for each byte. */
static void flush_bytes(struct decoding *g, size_t at)
{
    struct decoding_step *step = &g->steps[at];

    if (step->held.len == 0)
        return;
    buf_clear(&step->text);
    if (utf8_valid(buf_str(&step->held)))
        buf_add_str(&step->text, buf_str(&step->held));
    else
        for (size_t i = 0; i < step->held.len; i++)
            buf_puts(&step->text, REPLACEMENT);
    buf_clear(&step->held);
    put_step_text(g, at);
}

/* Returns the byte of "<0xNN>", or -1. A '+' may replace the first digit: Rust accepts that. */
static int fallback_byte(struct str token)
{
    int high, low;

    if (token.len != 6 || memcmp(token.p, "<0x", 3) != 0 || token.p[5] != '>')
        return -1;
    high = token.p[3] == '+' ? 0 : hex_value(token.p[3]);
    low = hex_value(token.p[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Collects byte tokens until a different token comes. */
static void byte_fallback(struct decoding *g, size_t at, struct str token)
{
    int byte = fallback_byte(token);

    if (byte >= 0) {
        buf_add_c(&g->steps[at].held, (char)byte);
        return;
    }
    flush_bytes(g, at);
    put_token(g, at + 1, token);
}

/* Replaces each match within the token by `content`. */
static void replace_content(struct decoding *g, size_t at, struct str token, struct str content)
{
    struct decoding_step *step = &g->steps[at];
    const struct decoder_step *conf = &g->decoder->at[at];
    struct pattern_walk w = {.text = token};
    size_t done = 0;

    if (!g->regex)
        g->regex = regex_scratch_new();
    buf_clear(&step->text);
    while (pattern_next(conf->pattern, g->regex, &w) == 1) {
        buf_add(&step->text, token.p + done, w.start - done);
        buf_add_str(&step->text, content);
        done = w.end;
    }
    buf_add(&step->text, token.p + done, token.len - done);
    put_step_text(g, at);
}

/* Converts marks to blanks. Those of the first token are dropped if so configured. */
static void decode_metaspace(struct decoding *g, size_t at, struct str token)
{
    const struct decoder_step *conf = &g->decoder->at[at];
    struct decoding_step *step = &g->steps[at];
    struct str mark = str_of(conf->content, conf->content_len);
    bool first = conf->fused || step->count++ == 0;

    buf_clear(&step->text);
    while (token.len > 0) {
        size_t n = unicode_len(token.p[0]);

        if (!str_starts(token, mark))
            buf_add(&step->text, token.p, n);
        else if (!(first && conf->first_dropped))
            buf_add_c(&step->text, ' ');
        token = str_sub(token, n, token.len);
    }
    put_step_text(g, at);
}

/* Returns the start of the trailing run of the content's characters, at most `stop` of them. */
static size_t tail_start(const struct decoder_step *conf, struct str s)
{
    struct str content = str_of(conf->content, conf->content_len);
    size_t to = s.len;

    for (uint32_t i = 0; i < conf->stop && str_ends(str_sub(s, 0, to), content); i++)
        to -= content.len;
    return to;
}

/* Drops up to `start` characters at the front, of which *count were dropped before. */
static struct str strip_front(const struct decoder_step *conf, struct str s, size_t *count,
                              bool *closed)
{
    struct str content = str_of(conf->content, conf->content_len);

    while (!*closed && s.len > 0) {
        if (*count >= conf->start || !str_starts(s, content)) {
            *closed = true;
            break;
        }
        s = str_sub(s, content.len, s.len);
        (*count)++;
    }
    return s;
}

/* Strips a token. Unfused: each token by itself. Fused: the front once, and the end when it is
 * known to be the end. */
static void strip_token(struct decoding *g, size_t at, struct str token)
{
    const struct decoder_step *conf = &g->decoder->at[at];
    struct decoding_step *step = &g->steps[at];
    size_t to, count = 0;
    bool closed = false;

    if (!conf->fused) {
        token = strip_front(conf, token, &count, &closed);
        put_token(g, at + 1, str_sub(token, 0, tail_start(conf, token)));
        return;
    }
    buf_add_str(&step->held, strip_front(conf, token, &step->count, &step->closed));
    to = tail_start(conf, buf_str(&step->held));
    buf_clear(&step->text);
    buf_add(&step->text, step->held.p, to);
    buf_consume(&step->held, to);
    put_step_text(g, at);
}

/* BPEDecoder: the suffix of all tokens except the last becomes a blank, so one token waits. */
static void decode_suffix(struct decoding *g, size_t at, struct str token)
{
    struct decoding_step *step = &g->steps[at];

    if (step->count++ > 0)
        replace_content(g, at, buf_str(&step->held), STR(" "));
    buf_set(&step->held, token);
}

static void join_token(struct decoding *g, size_t at, struct str token)
{
    if (g->steps[at].count++ > 0)
        put_token(g, at + 1, STR(" "));
    put_token(g, at + 1, token);
}

/* Reports whether the step needs the whole token, so that it holds fragments until the end. */
static bool needs_whole_token(const struct decoder_step *conf)
{
    return conf->fused && (conf->kind == STEP_REPLACE || conf->kind == STEP_BYTE_FALLBACK ||
                           conf->kind == STEP_BYTE_LEVEL || conf->kind == STEP_SUFFIX);
}

/* Passes one token through one step. */
static void run_step(struct decoding *g, size_t at, struct str token)
{
    const struct decoder_step *conf = &g->decoder->at[at];

    switch (conf->kind) {
    case STEP_BYTE_LEVEL:
        byte_level(g, at, token);
        break;
    case STEP_BYTE_FALLBACK:
        byte_fallback(g, at, token);
        break;
    case STEP_FUSE:
        put_token(g, at + 1, token);
        break;
    case STEP_STRIP:
        strip_token(g, at, token);
        break;
    case STEP_REPLACE:
        replace_content(g, at, token, str_of(conf->content, conf->content_len));
        break;
    case STEP_METASPACE:
        decode_metaspace(g, at, token);
        break;
    case STEP_SUFFIX:
        decode_suffix(g, at, token);
        break;
    case STEP_JOIN:
        join_token(g, at, token);
        break;
    }
}

/* Passes a token to step `at`, or to the output if there is no such step. */
static void put_token(struct decoding *g, size_t at, struct str token)
{
    if (at == g->decoder->n)
        buf_add_str(g->out, token);
    else if (needs_whole_token(&g->decoder->at[at]))
        buf_add_str(&g->steps[at].held, token);
    else
        run_step(g, at, token);
}

/* Passes on what the step still holds, because its input has ended. */
static void end_step(struct decoding *g, size_t at)
{
    const struct decoder_step *conf = &g->decoder->at[at];
    struct decoding_step *step = &g->steps[at];
    struct buf whole = {0};
    struct str rest;

    if (needs_whole_token(conf)) {
        whole = step->held;
        step->held = (struct buf){0};
        run_step(g, at, buf_str(&whole));
        buf_done(&whole);
    }
    switch (conf->kind) {
    case STEP_BYTE_LEVEL:
        rest = buf_str(&step->held);
        buf_clear(&step->text);
        write_lossy(&rest, true, &step->text);
        put_step_text(g, at);
        break;
    case STEP_BYTE_FALLBACK:
        flush_bytes(g, at);
        break;
    case STEP_SUFFIX:
        if (step->count > 0)
            replace_content(g, at, buf_str(&step->held), STR(""));
        break;
    default: /* for STEP_STRIP the held bytes are dropped */
        break;
    }
    buf_clear(&step->held);
    step->count = 0;
    step->closed = false;
}

void decoding_feed(struct decoding *g, struct str token, struct buf *out)
{
    g->out = out;
    /* The usual token of the usual decoder: whole characters, and no held bytes. */
    if (g->decoder->byte_level && !decoding_waits(g) && utf8_valid(token))
        buf_add_str(out, token);
    else
        put_token(g, 0, token);
}

void decoding_finish(struct decoding *g, struct buf *out)
{
    g->out = out;
    for (size_t i = 0; i < g->decoder->n; i++)
        end_step(g, i);
}
