#include "worker/parsers/kinds.h"

#include <ctype.h>

#include "common/base/attrs.h"

static const char *const tool_names[] = {
#define X(kind, name) name,
    TOOL_KINDS(X)
#undef X
};

static const char *const reasoning_names[] = {
#define X(kind, name) name,
    REASONING_KINDS(X)
#undef X
};

struct alias {
    const char *name;
    int kind;
};

static const struct alias tool_aliases[] = {
    {"qwen", TOOL_HERMES},
    {"qwen25", TOOL_HERMES},
    {"qwen3", TOOL_HERMES},
    {"qwen3_xml", TOOL_QWEN3_CODER},
    {"step3p5", TOOL_QWEN3_CODER},
    {"nemotron3", TOOL_QWEN3_CODER},
    {"llama3", TOOL_LLAMA3_JSON},
    {"llama4_json", TOOL_LLAMA3_JSON},
    {"llama4_pythonic", TOOL_PYTHONIC},
    {"deepseekv3", TOOL_DEEPSEEK_V3},
    {"deepseekv31", TOOL_DEEPSEEK_V31},
    {"deepseekv32", TOOL_DEEPSEEK_V32},
    {"v3", TOOL_DEEPSEEK_V3},
    {"v31", TOOL_DEEPSEEK_V31},
    {"v32", TOOL_DEEPSEEK_V32},
    {"deepseek_v4", TOOL_DEEPSEEK_V32},
    {"deepseekv4", TOOL_DEEPSEEK_V32},
    {"glm", TOOL_GLM45},
    {"openai", TOOL_GPT_OSS},
    {"harmony", TOOL_GPT_OSS},
    {"minimax", TOOL_MINIMAX_M2},
};

static const struct alias reasoning_aliases[] = {
    {"qwen3_thinking", REASONING_DEEPSEEK_R1},
    {"deepseek_v3", REASONING_QWEN3},
    {"deepseek_v31", REASONING_QWEN3},
    {"deepseek_v32", REASONING_QWEN3},
    {"step3", REASONING_DEEPSEEK_R1},
    {"step3p5", REASONING_DEEPSEEK_R1},
    {"interns1", REASONING_QWEN3},
    {"nemotron_3", REASONING_QWEN3},
    {"nemotron_v3", REASONING_QWEN3},
    {"gpt_oss", REASONING_HARMONY},
    {"openai_gptoss", REASONING_HARMONY},
    {"minimax_m2", REASONING_MINIMAX},
};

static bool same_name(struct str s, const char *name)
{
    size_t i;

    for (i = 0; i < s.len && name[i]; i++) {
        char c = (char)tolower((unsigned char)s.p[i]);

        if ((c == '-' ? '_' : c) != name[i])
            return false;
    }
    return i == s.len && !name[i];
}

static int find_name(struct str s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (same_name(s, names[i]))
            return (int)i;
    return -1;
}

static int find_alias(struct str s, const struct alias *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (same_name(s, list[i].name))
            return list[i].kind;
    return -1;
}

static void list_names(const char *const *names, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%s", i ? ", " : "", names[i]);
}

void tool_kind_names(struct buf *out)
{
    list_names(tool_names, ARRAY_LEN(tool_names), out);
}

void reasoning_kind_names(struct buf *out)
{
    list_names(reasoning_names, ARRAY_LEN(reasoning_names), out);
}

int tool_kind_named(struct str name, enum tool_kind *ret)
{
    int k = find_name(name, tool_names, ARRAY_LEN(tool_names));

    if (k < 0)
        k = find_alias(name, tool_aliases, ARRAY_LEN(tool_aliases));
    if (k < 0)
        return -1;
    *ret = (enum tool_kind)k;
    return 0;
}

int reasoning_kind_named(struct str name, enum reasoning_kind *ret)
{
    int k = find_name(name, reasoning_names, ARRAY_LEN(reasoning_names));

    if (k < 0)
        k = find_alias(name, reasoning_aliases, ARRAY_LEN(reasoning_aliases));
    if (k < 0)
        return -1;
    *ret = (enum reasoning_kind)k;
    return 0;
}

const char *tool_kind_name(enum tool_kind kind)
{
    return tool_names[kind];
}

const char *reasoning_kind_name(enum reasoning_kind kind)
{
    return reasoning_names[kind];
}

/* In this order the first row whose marks all occur in the template decides. */
static const struct {
    enum tool_kind kind;
    const char *mark;
    const char *also; /* or NULL */
} tool_marks[] = {
    {TOOL_DEEPSEEK_V32, "DSML\xef\xbd\x9c", NULL},
    {TOOL_GPT_OSS, "<|channel|>", "<|message|>"},
    {TOOL_MINIMAX_M2, "<minimax:tool_call>", NULL},
    {TOOL_KIMI_K2, "<|tool_calls_section_begin|>", NULL},
    {TOOL_DEEPSEEK_V3, "<｜tool▁calls▁begin｜>", "```json"},
    {TOOL_DEEPSEEK_V31, "<｜tool▁calls▁begin｜>", NULL},
    {TOOL_GLM47, "{function-name}<arg_key>", NULL},
    {TOOL_GLM45, "<arg_key>", NULL},
    {TOOL_QWEN3_CODER, "<function=", "<parameter="},
    {TOOL_MISTRAL, "[TOOL_CALLS]", NULL},
    {TOOL_PYTHONIC, "[func_name1(param", NULL},
    {TOOL_HERMES, "<tool_call>", NULL},
    {TOOL_LLAMA3_JSON, "<|python_tag|>", NULL},
    {TOOL_LLAMA3_JSON, "<|start_header_id|>", "\"parameters\""},
};

static bool has(struct str s, const char *mark)
{
    return !mark || str_find(s, str_cstr(mark), 0) != SIZE_MAX;
}

static enum reasoning_kind detect_reasoning(struct str s, enum tool_kind tool)
{
    if (tool == TOOL_GPT_OSS)
        return REASONING_HARMONY;
    if (has(s, "◁think▷"))
        return REASONING_KIMI;
    if (has(s, "[THINK]"))
        return REASONING_MISTRAL;
    if (!has(s, "</think>"))
        return REASONING_NONE;
    if (tool == TOOL_MINIMAX_M2)
        return REASONING_MINIMAX;
    if (tool == TOOL_KIMI_K2)
        return REASONING_KIMI_K2;
    if (tool == TOOL_GLM45 || tool == TOOL_GLM47)
        return REASONING_GLM45;
    /* DeepSeek-R1's first template only cuts thoughts away: the model opens them unasked. */
    if (!has(s, "<think>"))
        return REASONING_DEEPSEEK_R1;
    return REASONING_QWEN3;
}

void parser_detect(struct str template_source, enum tool_kind *tool, enum reasoning_kind *reasoning)
{
    *tool = TOOL_NONE;
    for (size_t i = 0; i < ARRAY_LEN(tool_marks) && *tool == TOOL_NONE; i++)
        if (has(template_source, tool_marks[i].mark) && has(template_source, tool_marks[i].also))
            *tool = tool_marks[i].kind;
    *reasoning = detect_reasoning(template_source, *tool);
}
