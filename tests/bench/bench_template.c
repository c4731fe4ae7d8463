/* bench: rg_template */
/*
 * Renders a long conversation: bench_template TEMPLATE.jinja [MESSAGES [BYTES]]
 * Prints CPU microseconds of the best render and MB/s. With `--context` as the last
 * argument it prints the context as JSON instead, for jinja2_render.py to time the reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/template/template.h"

#include "bench_clock.h"

static void write_text(struct json_out *o, size_t bytes, unsigned seed)
{
    static const char *const words[] = {"the ",   "file ",  "has ", "been ",
                                        "read, ", "naïve ", "\n",   "x = 1; "};
    struct buf text = {0};

    while (text.len < bytes)
        buf_puts(&text, words[seed++ * 7 % ARRAY_LEN(words)]);
    json_out_str(o, buf_str(&text));
    buf_done(&text);
}

static void write_message(struct json_out *o, unsigned i, size_t bytes)
{
    static const char *const roles[] = {"user", "assistant", "tool", "assistant"};
    const char *role = roles[i % 4];

    json_out_obj(o);
    json_out_key(o, "role");
    json_out_cstr(o, role);
    json_out_key(o, "content");
    write_text(o, bytes, i);
    if (i % 4 == 1) {
        json_out_key(o, "tool_calls");
        json_out_raw(o, STR("[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":"
                            "\"read\",\"arguments\":{\"path\":\"/src/main.c\",\"line\":12}}}]"));
    }
    json_out_end_obj(o);
}

static void write_context(struct buf *b, unsigned messages, size_t bytes)
{
    struct json_out o = json_out_to(b);

    json_out_obj(&o);
    json_out_key(&o, "messages");
    json_out_arr(&o);
    for (unsigned i = 0; i < messages; i++)
        write_message(&o, i, bytes);
    json_out_end_arr(&o);
    json_out_key(&o, "tools");
    json_out_raw(&o, STR("[{\"type\":\"function\",\"function\":{\"name\":\"read\",\"description\":"
                         "\"Reads a file\",\"parameters\":{\"type\":\"object\",\"properties\":{"
                         "\"path\":{\"type\":\"string\",\"description\":\"where\"}},\"required\":["
                         "\"path\"]}}}]"));
    json_out_key(&o, "add_generation_prompt");
    json_out_bool(&o, true);
    json_out_end_obj(&o);
}

static int run(const struct template *t, const struct json *context)
{
    struct arena a = {0};
    struct buf out = {0};
    double best = 1e18, spent = 0;
    struct err e;

    do {
        double start = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID), us;

        arena_reset(&a);
        buf_clear(&out);
        if (template_render(t, &a, context, NULL, &out, &e) != 0) {
            (void)fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        us = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
        spent += us;
        best = us < best ? us : best;
    } while (spent < 1e6);
    printf("render %zu bytes: %.1f us, %.0f MB/s\n", out.len, best, (double)out.len / best);
    buf_done(&out);
    arena_done(&a);
    return 0;
}

static char *read_source(const char *path, size_t *len)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");

    if (!f)
        return NULL;
    *len = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    unsigned messages = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 200;
    size_t bytes = argc > 3 ? strtoul(argv[3], NULL, 10) : 500, len = 0;
    char *source = argc > 1 ? read_source(argv[1], &len) : NULL;
    const struct json *context;
    struct template *t = NULL;
    struct arena a = {0};
    struct buf text = {0};
    struct err e;
    int rc = 1;

    write_context(&text, messages, bytes);
    if (argc > 4 && strcmp(argv[4], "--context") == 0) {
        rc = fwrite(text.p, 1, text.len, stdout) == text.len ? 0 : 1;
    } else if (!source) {
        (void)fprintf(stderr, "bench_template TEMPLATE.jinja [MESSAGES [BYTES]]\n");
    } else if (template_compile(str_of(source, len), argv[1], &t, NULL, &e) != 0 ||
               json_parse(&a, buf_str(&text), &context, &e) != 0) {
        (void)fprintf(stderr, "%s\n", e.text);
    } else {
        rc = run(t, context);
    }
    template_free(t);
    arena_done(&a);
    buf_done(&text);
    return rc;
}
