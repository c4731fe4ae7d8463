/* Implements `rollgate tokenize` and `rollgate detokenize`: convert standard input as a whole, or
 * one JSON line at a time. Both share options, the loop over lines and the writing of errors. They
 * differ in two functions: line_fn, and the one for whole input. */

#include "worker/commands/offline_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

enum { OUT_FLUSH = 1 << 16 };

#define STDIN_NAME "standard input"

struct options {
    const char *tokenizer; /* path, or NULL */
    const char *model;     /* folder, or NULL */
    bool jsonl;
    bool special; /* --special, --skip-special */
};

struct tokens_mode {
    const struct tokenizer *t;
    struct encoder *enc;
    struct options options;
    struct arena arena; /* memory of one line */
    struct token_vec ids;
    struct buf text;
    struct buf out; /* output not yet written to stdout */
};

typedef int line_fn(struct tokens_mode *c, const struct json *line, struct json_out *o,
                    struct err *e);

static int usage(const char *name)
{
    fprintf(stderr, "usage: rollgate %s [DIR | --model DIR | --tokenizer FILE] [--jsonl] [%s]\n",
            name, strcmp(name, "tokenize") == 0 ? "--special" : "--skip-special");
    return 2;
}

/* Reads the arguments. A tokenizer file and a model folder exclude each other. */
static bool parse_options(struct options *o, int argc, char **argv, const char *flag)
{
    *o = (struct options){0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--jsonl") == 0)
            o->jsonl = true;
        else if (strcmp(argv[i], flag) == 0)
            o->special = true;
        else if (strcmp(argv[i], "--tokenizer") == 0 && i + 1 < argc)
            o->tokenizer = argv[++i];
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc)
            o->model = argv[++i];
        else if (argv[i][0] != '-' && !o->model)
            o->model = argv[i];
        else
            return false;
    }
    return !(o->tokenizer && o->model);
}

/* Opens the tokenizer. On error prints the reason and returns NULL. */
static struct tokenizer *open_tokenizer(const struct options *o)
{
    struct tokenizer *t = NULL;
    struct buf path = {0};
    struct err e;

    if (!o->tokenizer && !o->model)
        return tokenizer_builtin();
    if (o->tokenizer)
        buf_printf(&path, "%s", o->tokenizer);
    else
        buf_printf(&path, "%s/tokenizer.json", o->model);
    buf_add_c(&path, '\0');
    if (tokenizer_load(path.p, &t, &e) < 0)
        fprintf(stderr, "rollgate: %s\n", e.text);
    buf_done(&path);
    return t;
}

/* Writes the collected output. Returns -1 on error. */
static int flush_output(struct tokens_mode *c)
{
    size_t n = fwrite(c->out.p ? c->out.p : "", 1, c->out.len, stdout);
    int rc = n == c->out.len ? 0 : -1;

    buf_clear(&c->out);
    return rc;
}

/* Returns the line's own flag, else that of the options. */
static bool line_flag(const struct tokens_mode *c, const struct json *line, const char *key)
{
    const struct json *flag = json_get(line, key);

    return flag ? json_is_true(flag) : c->options.special;
}

/* Turns {"text"} into {"ids"}. */
static int tokenize_line(struct tokens_mode *c, const struct json *line, struct json_out *o,
                         struct err *e)
{
    const struct json *text = json_get(line, "text");

    if (!json_is(text, JSON_STRING))
        return err_field(e, "text", "text is not a string");
    vec_clear(&c->ids);
    if (encoder_encode(c->enc, json_string(text), line_flag(c, line, "add_special_tokens"), &c->ids,
                       e) < 0)
        return -1;
    json_out_member_arr(o, "ids");
    for (size_t i = 0; i < c->ids.n; i++)
        json_out_i64(o, c->ids.at[i]);
    json_out_end_arr(o);
    return 0;
}

/* Writes the ids that no token has as unknown_ids, since decoders omit them from the text. */
static void add_unknown_ids(const struct tokens_mode *c, const struct json *ids, struct json_out *o)
{
    bool any = false;

    for (uint32_t i = 0; i < ids->n; i++) {
        if (c->ids.at[i] >= 0 && tokenizer_text(c->t, c->ids.at[i]).p)
            continue;
        if (!any)
            json_out_member_arr(o, "unknown_ids");
        any = true;
        json_out_value(o, &ids->items[i]);
    }
    if (any)
        json_out_end_arr(o);
}

/* Turns {"ids"} into {"text"}. */
static int detokenize_line(struct tokens_mode *c, const struct json *line, struct json_out *o,
                           struct err *e)
{
    const struct json *ids = json_get(line, "ids");

    if (!json_is(ids, JSON_ARRAY))
        return err_field(e, "ids", "ids is not a list");
    vec_clear(&c->ids);
    for (uint32_t i = 0; i < ids->n; i++) {
        int64_t id;

        if (json_to_i64(&ids->items[i], &id) < 0 || id < 0 || id > UINT32_MAX)
            return err_field(e, "ids", "an id is not a number from 0 to %u", UINT32_MAX);
        *vec_push(&c->ids) = id > INT32_MAX ? -1 : (int32_t)id; /* no token has either */
    }
    buf_clear(&c->text);
    tokenizer_decode(c->t, c->ids.at, c->ids.n, line_flag(c, line, "skip_special_tokens"),
                     &c->text);
    json_out_member_str(o, "text", buf_str(&c->text));
    add_unknown_ids(c, ids, o);
    return 0;
}

/* Converts one line. Returns false if it failed; then the output line has the error. */
static bool run_line(struct tokens_mode *c, struct str text, line_fn *fn)
{
    struct json_out o = json_out_to(&c->out);
    size_t before = c->out.len;
    const struct json *line;
    struct err e;
    bool ok;

    arena_reset(&c->arena);
    json_out_obj(&o);
    ok = json_parse(&c->arena, text, &line, &e) == 0 && fn(c, line, &o, &e) == 0;
    if (!ok) {
        c->out.len = before;
        o = json_out_to(&c->out);
        json_out_obj(&o);
        json_out_member_cstr(&o, "error", err_code(&e));
        json_out_member_cstr(&o, "message", e.text);
    }
    json_out_end_obj(&o);
    buf_add_c(&c->out, '\n');
    return ok;
}

static int fail_command(const struct err *e)
{
    fprintf(stderr, "rollgate: %s\n", e->text);
    return 1;
}

/* Converts all lines. Returns 1 if a line, the input or the output failed. */
static int run_lines(struct tokens_mode *c, line_fn *fn)
{
    char *line = NULL;
    size_t cap = 0;
    struct err e;
    ssize_t n;
    int rc = 0;

    while ((n = getline(&line, &cap, stdin)) > 0) {
        if (line[n - 1] == '\n')
            n--;
        if (!run_line(c, str_of(line, (size_t)n), fn))
            rc = 1;
        if (c->out.len > OUT_FLUSH && flush_output(c) < 0)
            rc = 1;
    }
    if (file_check_end(stdin, STDIN_NAME, &e))
        rc = fail_command(&e);
    free(line);
    return rc;
}

/* Encodes the whole input as one text. Appends ids separated by blanks. */
static int tokenize_text(struct tokens_mode *c)
{
    struct buf in = {0};
    struct err e;
    int rc;

    rc = file_read_rest(STDIN_FILENO, STDIN_NAME, SIZE_MAX, &in, &e);
    if (rc == 0)
        rc = encoder_encode(c->enc, buf_str(&in), c->options.special, &c->ids, &e);
    buf_done(&in);
    if (rc < 0)
        return fail_command(&e);
    for (size_t i = 0; i < c->ids.n; i++)
        buf_printf(&c->out, "%s%d", i ? " " : "", c->ids.at[i]);
    buf_add_c(&c->out, '\n');
    return 0;
}

/* Checks that each id has a token, since others would be dropped silently. Prints the first unknown
 * id and returns -1. */
static int check_ids(const struct tokens_mode *c)
{
    size_t n = tokenizer_vocab_size(c->t);

    for (size_t i = 0; i < c->ids.n; i++) {
        if (tokenizer_text(c->t, c->ids.at[i]).p)
            continue;
        fprintf(stderr, "rollgate: no token has the id %d; ids are 0 to %zu\n", c->ids.at[i],
                n - 1);
        return -1;
    }
    return 0;
}

/* Decodes the whole input: numbers separated by blanks or commas, with or without brackets. */
static int detokenize_text(struct tokens_mode *c)
{
    struct buf in = {0};
    char *at, *end;
    struct err e;
    int rc = 0;

    if (file_read_rest(STDIN_FILENO, STDIN_NAME, SIZE_MAX, &in, &e)) {
        buf_done(&in);
        return fail_command(&e);
    }
    buf_add_c(&in, '\0');
    for (at = in.p;; at = end) {
        long id;

        at += strspn(at, " \t\r\n,[]");
        id = strtol(at, &end, 10);
        if (end == at)
            break;
        if (id < 0 || id > INT32_MAX) {
            rc = 1;
            break;
        }
        *vec_push(&c->ids) = (int32_t)id;
    }
    if (at != in.p + in.len - 1) /* also a NUL byte of the input itself */
        rc = 1;
    buf_done(&in);
    if (rc != 0)
        fprintf(stderr, "rollgate: not token ids\n");
    else if (check_ids(c) < 0)
        rc = 1;
    else
        tokenizer_decode(c->t, c->ids.at, c->ids.n, c->options.special, &c->out);
    return rc;
}

/* Runs either command with its two functions. Returns the exit status. */
static int run_tokens(const struct options *options, line_fn *line,
                      int (*text)(struct tokens_mode *c))
{
    struct tokenizer *t = open_tokenizer(options);
    struct tokens_mode c = {.t = t, .options = *options};
    int rc = 1;

    if (!t)
        return 1;
    c.enc = encoder_new(t);
    rc = options->jsonl ? run_lines(&c, line) : text(&c);
    if (flush_output(&c) < 0 || fflush(stdout) != 0)
        rc = 1;
    encoder_free(c.enc);
    arena_done(&c.arena);
    vec_done(&c.ids);
    buf_done(&c.text);
    buf_done(&c.out);
    tokenizer_free(t);
    return rc;
}

/* Returns 0 if all is done, 1 if a line or the tokenizer failed, 2 for usage. */
int tokenize_command(int argc, char **argv)
{
    struct options options;

    if (!parse_options(&options, argc, argv, "--special"))
        return usage("tokenize");
    return run_tokens(&options, tokenize_line, tokenize_text);
}

int detokenize_command(int argc, char **argv)
{
    struct options options;

    if (!parse_options(&options, argc, argv, "--skip-special"))
        return usage("detokenize");
    return run_tokens(&options, detokenize_line, detokenize_text);
}
