/* Implements `rollgate render`: renders one context from standard input, or one per JSON line.
 * Errors have the kinds and texts of the reference, so that a program can compare both. */

#include "worker/commands/offline_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "worker/text/model/model.h"
#include "worker/text/template/template.h"

enum { TEMPLATE_MAX = 64 << 20 };

struct render_args {
    bool jsonl;
    const char *file;
    const char *model; /* folder of a model: its template and special tokens are used */
    const char *now;
};

/* Parses YYYY-MM-DDTHH:MM:SS. */
static bool parse_now(struct str text, struct tm *ret)
{
    char copy[32];
    char *end;

    if (!text.p || text.len >= sizeof(copy))
        return false;
    memcpy(copy, text.p, text.len);
    copy[text.len] = 0;
    memset(ret, 0, sizeof(*ret));
    end = strptime(copy, "%Y-%m-%dT%H:%M:%S", ret);
    return end && !*end;
}

/* Writes kind, message and line as members of the output. */
static void write_error(struct json_out *o, const struct template_error *error)
{
    json_out_member_cstr(o, "error", error->kind);
    json_out_member_str(o, "message", error->message);
    json_out_member_i64(o, "line", error->line);
}

/* Template to render with: of a file, or of a model. */
struct source {
    struct template *file;
    struct model *model;
};

/* Returns the template for the context, or NULL. A model may have a separate template for requests
 * with tools. */
static const struct template *source_template(const struct source *s, const struct json *context)
{
    if (s->model) /* cppcheck mistakes the pointer for an integer here */
        // cppcheck-suppress CastIntegerToAddressAtReturn
        return model_template(s->model, !json_is_null(json_get(context, "tools")));
    // cppcheck-suppress CastIntegerToAddressAtReturn
    return s->file;
}

/* Returns the context, with the model's special tokens that it does not set itself. */
static const struct json *source_context(const struct source *s, struct arena *a,
                                         const struct json *given)
{
    const struct json *special = s->model ? model_special(s->model) : NULL;
    struct json *ret;

    if (!special || !json_is(given, JSON_OBJECT))
        return given;
    ret = ARENA_NEW(a, struct json);
    *ret = (struct json){.kind = JSON_OBJECT};
    ret->members = arena_calloc(a, given->n + special->n + 1, sizeof(*ret->members));
    for (uint32_t i = 0; i < special->n; i++) {
        if (!json_get_str(given, json_string(&special->members[i].key)))
            ret->members[ret->n++] = special->members[i];
    }
    for (uint32_t i = 0; i < given->n; i++)
        ret->members[ret->n++] = given->members[i];
    return ret;
}

/* Renders one request, and writes the members of its output to o. */
static void render_line(const struct source *from, struct arena *a, const struct json *request,
                        struct json_out *o)
{
    struct template_error error = {0};
    struct template_options options = {.error = &error};
    const struct json *context = json_get(request, "context");
    const struct template *t = source_template(from, context);
    struct template *own = NULL;
    struct str source = json_string(json_get(request, "template"));
    struct buf text = {0};
    struct tm now;
    struct err e;
    int rc = 0;

    if (parse_now(json_string(json_get(request, "now")), &now))
        options.now = &now;
    options.continue_field = json_string(json_get(request, "continue_final_message"));
    options.continue_final_message =
        options.continue_field.p || json_is_true(json_get(request, "continue_final_message"));
    if (source.p)
        rc = template_compile(source, "template", &own, &error, &e);
    if (rc == 0 && !source.p && !t) {
        error = (struct template_error){.kind = "ValueError", .message = STR("no template given")};
        rc = -1;
    }
    if (rc == 0)
        rc = template_render(own ? own : t, a, source_context(from, a, context), &options, &text,
                             &e);
    if (rc == 0)
        json_out_member_str(o, "text", buf_str(&text));
    else
        write_error(o, &error);
    buf_done(&text);
    template_free(own);
}

/* Renders one request per line. A failing line does not end the run. */
static int run_jsonl(const struct source *from)
{
    struct arena a = {0};
    struct buf out = {0};
    char *line = NULL;
    size_t cap = 0;
    struct err failure;
    ssize_t n;
    int rc;

    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct json_out o = json_out_to(&out);
        const struct json *request;
        struct err e;

        buf_clear(&out);
        json_out_obj(&o);
        if (json_parse(&a, str_of(line, (size_t)n), &request, &e) == 0) {
            render_line(from, &a, request, &o);
        } else {
            json_out_member_cstr(&o, "error", "ValueError");
            json_out_member_cstr(&o, "message", e.text);
        }
        json_out_end_obj(&o);
        buf_add_c(&out, '\n');
        (void)fwrite(out.p, 1, out.len, stdout);
        arena_reset(&a);
    }
    rc = file_check_end(stdin, "standard input", &failure);
    if (rc)
        (void)fprintf(stderr, "rollgate render: %s\n", failure.text);
    free(line);
    buf_done(&out);
    arena_done(&a);
    return rc ? 1 : 0;
}

/* Renders one context from standard input, and prints only the text. */
static int run_once(const struct source *from, const char *now_text)
{
    struct template_options options = {0};
    struct arena a = {0};
    struct buf in = {0}, out = {0};
    const struct json *context;
    struct tm now;
    struct err e;
    int rc = -1;

    if (parse_now(str_cstr(now_text), &now))
        options.now = &now;
    if (file_read_rest(STDIN_FILENO, "standard input", SIZE_MAX, &in, &e) == 0) {
        if (json_parse(&a, buf_str(&in), &context, &e) != 0)
            (void)err_set(&e, ERR_INVALID, "the context on stdin is no JSON");
        else if (template_render(source_template(from, context), &a,
                                 source_context(from, &a, context), &options, &out, &e) == 0)
            rc = 0;
    }
    if (rc != 0)
        (void)fprintf(stderr, "rollgate render: %s\n", e.text);
    else if (fwrite(out.p ? out.p : "", 1, out.len, stdout) != out.len)
        rc = -1;
    buf_done(&in);
    buf_done(&out);
    arena_done(&a);
    return rc == 0 ? 0 : 1;
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: rollgate render --jsonl [DIR | --model DIR | --template FILE]\n"
                          "       rollgate render DIR | --model DIR | --template FILE"
                          " [--now TIME] < context.json\n");
    return 2;
}

/* Reads the arguments. A template and a model exclude each other. */
static bool parse_args(int argc, char **argv, struct render_args *ret)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--jsonl") == 0)
            ret->jsonl = true;
        else if (strcmp(argv[i], "--template") == 0 && i + 1 < argc)
            ret->file = argv[++i];
        else if (strcmp(argv[i], "--now") == 0 && i + 1 < argc)
            ret->now = argv[++i];
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc)
            ret->model = argv[++i];
        else if (argv[i][0] != '-' && !ret->model)
            ret->model = argv[i];
        else
            return false;
    }
    return !(ret->model && ret->file);
}

/* Opens the template. With --jsonl and neither file nor model, each line must have its own
 * template. */
static int open_source(const struct render_args *args, struct source *ret, struct err *e)
{
    struct model_options o = {.dir = args->model};
    struct buf text = {0};
    int rc = 0;

    /* lines may have their own template; without --jsonl the built-in model's is used */
    if (args->model || (!args->file && !args->jsonl))
        return model_load(&o, &ret->model, e);
    if (args->file)
        rc = file_read(args->file, TEMPLATE_MAX, &text, e);
    if (args->file && rc == 0)
        rc = template_compile(buf_str(&text), args->file, &ret->file, NULL, e);
    buf_done(&text);
    return rc;
}

/* Returns 0 if it rendered, 1 if it failed, 2 for usage. */
int render_command(int argc, char **argv)
{
    struct render_args args = {0};
    struct source from = {0};
    struct err e;
    int rc = 1;

    if (!parse_args(argc, argv, &args))
        return usage();
    if (open_source(&args, &from, &e) != 0)
        (void)fprintf(stderr, "rollgate render: %s\n", e.text);
    else
        rc = args.jsonl ? run_jsonl(&from) : run_once(&from, args.now);
    template_free(from.file);
    model_free(from.model);
    return rc;
}
