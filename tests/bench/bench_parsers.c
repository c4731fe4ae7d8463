/* bench: rg_parsers */
#include <glob.h>
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "worker/text/parsers/parser.h"

#include "bench_clock.h"

/* What streaming costs, in pieces of 4 bytes, which is what a token is. First megabytes a second
 * of some kinds: a thought, text and a call of 16 KB. Then of every kind the microseconds of a KB:
 * of prose, in which the marks of calls are looked for, and of whole answers with calls, which are
 * the cases of tests/data/parsers (the first argument, if they lie elsewhere). */
static void ignore(void *ctx, const struct parse_event *ev)
{
    *(size_t *)ctx += ev->text.len;
}

static const struct {
    enum tool_kind tool;
    enum reasoning_kind reasoning;
    const char *head, *tail;
} kinds[] = {
    {TOOL_NONE, REASONING_NONE, "", ""},
    {TOOL_HERMES, REASONING_QWEN3,
     "<think>hm</think>Text <tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</tool_call>"},
    {TOOL_QWEN3_CODER, REASONING_QWEN3, "Text <tool_call>\n<function=write>\n<parameter=content>\n",
     "\n</parameter>\n</function>\n</tool_call>"},
    {TOOL_GLM45, REASONING_GLM45, "Text <tool_call>write\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call>"},
    {TOOL_PYTHONIC, REASONING_NONE, "[write(content=\"", "\")]"},
    {TOOL_GPT_OSS, REASONING_HARMONY,
     "<|channel|>commentary to=functions.write <|constrain|>json<|message|>{\"content\": \"",
     "\"}"},
};

enum { ROUNDS = 200, PIECE = 4, LONG = 16384 };

static size_t seen;

/* One answer, read as it streams. */
static void read_answer(const struct parser_options *o, struct str text)
{
    struct parser *p = parser_new(o, (struct parse_sink){ignore, &seen});

    for (size_t at = 0; at < text.len; at += PIECE)
        parser_feed(p, str_sub(text, at, PIECE));
    parser_finish(p);
    parser_free(p);
}

/* Processor seconds of so many readings. */
static double read_often(const struct parser_options *o, struct str text, int rounds)
{
    double t0 = clock_s(CLOCK_THREAD_CPUTIME_ID);

    for (int r = 0; r < rounds; r++)
        read_answer(o, text);
    return clock_s(CLOCK_THREAD_CPUTIME_ID) - t0;
}

static void prose(struct buf *text)
{
    while (text->len < LONG)
        buf_puts(text, "some words of an argument, ");
}

static void long_calls(void)
{
    struct buf text = {0};

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct parser_options o = {.tool = kinds[k].tool,
                                   .reasoning = kinds[k].reasoning,
                                   .hold_bytes = PARSER_HOLD_BYTES};
        double s;

        buf_clear(&text);
        buf_puts(&text, kinds[k].head);
        prose(&text);
        buf_puts(&text, kinds[k].tail);
        s = read_often(&o, buf_str(&text), ROUNDS);
        printf("parser %-12s %7.1f MB/s  %6.1f ns a piece\n", tool_kind_name(kinds[k].tool),
               (double)text.len * ROUNDS / s / 1e6, s * 1e9 / ((double)text.len * ROUNDS / PIECE));
    }
    buf_done(&text);
}

static struct {
    double seconds, bytes;
} answers[TOOL_KIND_COUNT];

/* The cases of a file, each into the sums of its kind. */
static void read_cases(struct str text)
{
    while (text.len > 0) {
        struct parser_options o = {.hold_bytes = PARSER_HOLD_BYTES};
        struct str line = str_cut(&text, '\n'), name, answer;

        if (!str_starts(line, STR("=== ")))
            continue;
        line = str_cut(&text, '\n');
        name = str_sub(line, 0, str_find(line, STR(" "), 0));
        (void)str_cut(&text, '\n'); /* --- in */
        answer = str_sub(text, 0, str_find(text, STR("\n--- out\n"), 0));
        if (tool_kind_named(name, &o.tool) || str_find(line, STR(" hold="), 0) != SIZE_MAX)
            continue;
        answers[o.tool].seconds += read_often(&o, answer, ROUNDS);
        answers[o.tool].bytes += (double)answer.len * ROUNDS;
    }
}

static void read_folder(const char *folder)
{
    char pattern[512], bytes[64 << 10];
    glob_t files;

    (void)snprintf(pattern, sizeof(pattern), "%s/*.txt", folder);
    if (glob(pattern, 0, NULL, &files) != 0) {
        fprintf(stderr, "no cases in %s\n", folder);
        return;
    }
    for (size_t i = 0; i < files.gl_pathc; i++) {
        FILE *f = fopen(files.gl_pathv[i], "rb");
        size_t n = f ? fread(bytes, 1, sizeof(bytes), f) : 0;

        read_cases(str_of(bytes, n));
        if (f)
            (void)fclose(f);
    }
    globfree(&files);
}

int main(int argc, char **argv)
{
    struct buf text = {0};

    long_calls();
    prose(&text);
    read_folder(argc > 1 ? argv[1] : "tests/data/parsers");
    for (int k = 0; k < TOOL_KIND_COUNT; k++) {
        struct parser_options o = {.tool = (enum tool_kind)k, .hold_bytes = PARSER_HOLD_BYTES};
        double s = read_often(&o, buf_str(&text), ROUNDS);

        printf("%-28s prose %6.2f us a KB", tool_kind_name(o.tool),
               s * 1e9 / ((double)text.len * ROUNDS));
        if (answers[k].bytes > 0)
            printf("   answers with calls %6.2f us a KB",
                   1e9 * answers[k].seconds / answers[k].bytes);
        puts("");
    }
    buf_done(&text);
    return seen ? 0 : 1;
}
