/* bench: rg_parsers */
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "worker/parsers/parser.h"

#include "bench_clock.h"

/* Megabytes a second of each kind: a thought, text and a call of 16 KB in pieces of 4 bytes, which
 * is what a token is. */
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

int main(void)
{
    enum { ROUNDS = 200, PIECE = 4 };
    struct buf text = {0};
    size_t seen = 0;

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct parser_options o = {.tool = kinds[k].tool,
                                   .reasoning = kinds[k].reasoning,
                                   .hold_bytes = PARSER_HOLD_BYTES};
        double t0 = clock_s(CLOCK_MONOTONIC);

        buf_clear(&text);
        buf_puts(&text, kinds[k].head);
        while (text.len < 16384)
            buf_puts(&text, "some words of an argument, ");
        buf_puts(&text, kinds[k].tail);
        for (int r = 0; r < ROUNDS; r++) {
            struct parser *p = parser_new(&o, (struct parse_sink){ignore, &seen});

            for (size_t at = 0; at < text.len; at += PIECE)
                parser_feed(p, str_sub(buf_str(&text), at, PIECE));
            parser_finish(p);
            parser_free(p);
        }
        t0 = clock_s(CLOCK_MONOTONIC) - t0;
        printf("parser %-12s %7.1f MB/s  %6.1f ns a piece\n", tool_kind_name(kinds[k].tool),
               (double)text.len * ROUNDS / t0 / 1e6,
               t0 * 1e9 / ((double)text.len * ROUNDS / PIECE));
    }
    buf_done(&text);
    return seen ? 0 : 1;
}
