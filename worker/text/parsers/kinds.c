/*
 * Names are compared word by word with the lists of kinds.h. The guess from a template searches
 * tool_marks in order: the first row whose marks all occur wins. So rows with rare marks precede
 * rows with common ones, and "<tool_call>", which many families write, is near the end. Thoughts
 * have marks of their own, or follow from the way of calling.
 */
#include "worker/text/parsers/kinds.h"

#include <ctype.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"

struct names {
    const char *name;
    const char *others; /* other names, separated by spaces */
};

static const struct names tool_names[] = {
#define X(kind, name, others) {name, others},
    TOOL_KINDS(X)
#undef X
};

static const struct names reasoning_names[] = {
#define X(kind, name, others) {name, others},
    REASONING_KINDS(X)
#undef X
};

static bool is_same_kind(struct str s, struct str name)
{
    if (s.len != name.len || s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = (char)tolower((unsigned char)s.p[i]);

        if ((c == '-' ? '_' : c) != name.p[i])
            return false;
    }
    return true;
}

/* Returns the next word of a list; absent after the last. */
static struct str next_word(struct str *list)
{
    size_t space = str_find(*list, STR(" "), 0);
    struct str word = str_sub(*list, 0, space);

    *list = str_sub(*list, word.len + 1, list->len);
    return word;
}

static int find_name(struct str s, const struct names *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct str others = str_cstr(names[i].others);

        if (is_same_kind(s, str_cstr(names[i].name)))
            return (int)i;
        while (others.len)
            if (is_same_kind(s, next_word(&others)))
                return (int)i;
    }
    return -1;
}

static void list_names(const struct names *names, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%s", i ? ", " : "", names[i].name);
        if (names[i].others[0])
            buf_printf(out, " (%s)", names[i].others);
    }
    buf_puts(out, "; leave it out, and the template's marks decide");
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
        return -1;
    *ret = (enum tool_kind)k;
    return 0;
}

int reasoning_kind_named(struct str name, enum reasoning_kind *ret)
{
    int k = find_name(name, reasoning_names, ARRAY_LEN(reasoning_names));

    if (k < 0)
        return -1;
    *ret = (enum reasoning_kind)k;
    return 0;
}

const char *tool_kind_name(enum tool_kind kind)
{
    return tool_names[kind].name;
}

const char *reasoning_kind_name(enum reasoning_kind kind)
{
    return reasoning_names[kind].name;
}

/* The first row whose marks all occur in the template decides. */
static const struct {
    enum tool_kind kind;
    const char *mark;
    const char *also; /* second mark that must occur, or NULL */
} tool_marks[] = {
    {TOOL_DEEPSEEK_V41, "DSML｜ ", NULL},
    {TOOL_DEEPSEEK_V41, "｜DSML｜", "' calls'"},
    {TOOL_DEEPSEEK_V32, "DSML｜", NULL},
    {TOOL_GIGACHAT35, "GCML｜", NULL},
    {TOOL_MUSE, "<atem:invoke", NULL},
    {TOOL_GPT_OSS, "<|channel|>", "<|message|>"},
    {TOOL_MINIMAX_M3, "]<]minimax[>[", NULL},
    {TOOL_MINIMAX_M2, "<minimax:tool_call>", NULL},
    {TOOL_KIMI_K3, "<|open|>", "<|sep|>"},
    {TOOL_KIMI_K2, "<|tool_calls_section_begin|>", NULL},
    {TOOL_STEP3, "steptml:", NULL},
    {TOOL_DEEPSEEK_V3, "<｜tool▁calls▁begin｜>", "```json"},
    {TOOL_DEEPSEEK_V31, "<｜tool▁calls▁begin｜>", NULL},
    {TOOL_SEED_OSS, "<seed:tool_call>", NULL},
    {TOOL_SEED_OSS, "seed:tool_call", NULL},
    {TOOL_K2_HORIZON, "<ifm|", NULL},
    {TOOL_LONGCAT, "longcat_tool_call", NULL},
    {TOOL_IQUEST_Q1, "<iquest_tool_call>", NULL},
    {TOOL_DOTS, "<dots_function_call>", NULL},
    {TOOL_HY_V4, "<tool_calls:opensource>", NULL},
    {TOOL_HY_V3, "<tool_sep>", NULL},
    {TOOL_HY_V3, "<tool_calls>", "<arg_key>"},
    {TOOL_SOLAR2, "<|tool_call:start|>", NULL},
    {TOOL_SOLAR, "<|tool_call:begin|>", NULL},
    {TOOL_PLAMO3, "plamo:begin_tool_request", NULL},
    {TOOL_INKLING, "<|content_invoke_tool_json|>", NULL},
    {TOOL_GEMMA4, "<|tool_call>", "<tool_call|>"},
    {TOOL_FUNCTIONGEMMA, "<start_function_call>", NULL},
    {TOOL_COHERE, "<|START_ACTION|>", NULL},
    {TOOL_APERTUS, "<|tools_prefix|>", NULL},
    {TOOL_LFM2, "<|tool_call_start|>", NULL},
    {TOOL_LFM2, "<|tool_list_start|>", NULL},
    {TOOL_NEMOTRON_NANO_V2, "<TOOLCALL>", NULL},
    {TOOL_INTERNLM, "<|action_start|>", "<|plugin|>"},
    {TOOL_GIGACHAT3, "<|role_sep|>", "function call"},
    {TOOL_GIGACHAT3, "<|function_call|>", NULL},
    {TOOL_HYPERCLOVAX_14B, "-> tool/function_call", NULL},
    {TOOL_GLM47, "{function-name}<arg_key>", NULL},
    {TOOL_GLM45, "<arg_key>", NULL},
    {TOOL_QWEN3_CODER, "<function=", "<parameter="},
    {TOOL_FUNCTIONARY, "<function=", NULL},
    {TOOL_FUNCTIONARY_V32, ">>>all", NULL},
    {TOOL_FUNCTIONARY_V32, ">>>", "recipient"},
    {TOOL_MINICPM5, "<function name=", NULL},
    {TOOL_OLMO3, "<function_calls>", NULL},
    {TOOL_MISTRAL, "[TOOL_CALLS]", NULL},
    {TOOL_PYTHONIC, "[func_name1(param", NULL},
    {TOOL_GRANITE_20B_FC, "<function_call>", NULL},
    {TOOL_JAMBA, "<tool_calls>", NULL},
    {TOOL_ERNIE45, "<tool_call>", "<response>"},
    {TOOL_HERMES, "<tool_call>", NULL},
    {TOOL_PHI4_MINI, "functools", NULL},
    {TOOL_XLAM, "[{\"name\": \"tool_call_name\"", NULL},
    {TOOL_PHI4_MINI, "<|/tool_call|>", NULL},
    {TOOL_PHI4_MINI, "<|/tool|>", NULL},
    {TOOL_GRANITE, "<|tool_call|>", NULL},
    {TOOL_LLAMA3_JSON, "<|python_tag|>", NULL},
    {TOOL_LLAMA3_JSON, "<|start_header_id|>", "\"parameters\""},
    {TOOL_LLAMA3_JSON, "<|header_start|>", "\"parameters\""},
};

static bool has_mark(struct str s, const char *mark)
{
    return !mark || str_find(s, str_cstr(mark), 0) != SIZE_MAX;
}

/* Marks that only one kind of thought has. */
static const struct {
    enum reasoning_kind kind;
    const char *mark;
    const char *also; /* second mark that must occur, or NULL */
} thought_marks[] = {
    {REASONING_KIMI, "◁think▷", NULL},
    {REASONING_MISTRAL, "[THINK]", NULL},
    {REASONING_MINIMAX_M3, "<mm:think>", NULL},
    {REASONING_MINIMAX_M3, "</mm:think>", NULL},
    {REASONING_SEED_OSS, "<seed:think>", NULL},
    {REASONING_SEED_OSS, "seed:think", NULL},
    {REASONING_GEMMA4, "<|channel>", "<channel|>"},
    {REASONING_COHERE, "<|START_THINKING|>", NULL},
    {REASONING_KIMI_K3, "<|open|>", "<|sep|>"},
    {REASONING_APERTUS, "<|inner_prefix|>", NULL},
    {REASONING_INKLING, "<|content_thinking|>", NULL},
    {REASONING_LONGCAT, "<longcat_think>", NULL},
    {REASONING_K2_HORIZON, "<ifm|think", NULL},
    {REASONING_PLAMO3, "plamo:begin_think", NULL},
    {REASONING_HY_V4, "<think:opensource>", NULL},
    {REASONING_SOLAR2, "<|think:start|>", NULL},
    {REASONING_SOLAR2, "<|think|>", "<|content|>"},
    {REASONING_MUSE, "to=self<|message|>", NULL},
    {REASONING_GRANITE, "Here is my thought process", NULL},
    {REASONING_GRANITE_THINKING, "truncate_history_thinking", "defer_loading"}, /* 4.2 */
};

/* Chooses among the kinds that write <think>, by the way of calling. */
static enum reasoning_kind common_thought(struct str s, enum tool_kind tool)
{
    if (tool == TOOL_MINIMAX_M2)
        return REASONING_MINIMAX;
    if (tool == TOOL_ERNIE45)
        return REASONING_ERNIE45;
    if (tool == TOOL_JAMBA && has_mark(s, "<answer>"))
        return REASONING_HUNYUAN;
    if (tool == TOOL_KIMI_K2)
        return REASONING_KIMI_K2;
    if (tool == TOOL_GLM45 || tool == TOOL_GLM47)
        return REASONING_GLM45;
    /* DeepSeek-R1's first template only removes thoughts: its model opens them unasked. Other
     * templates that only remove thoughts belong to models that need not think. */
    if (!has_mark(s, "<think>") && has_mark(s, "<｜Assistant｜>"))
        return REASONING_DEEPSEEK_R1;
    return REASONING_QWEN3;
}

static enum reasoning_kind detect_reasoning(struct str s, enum tool_kind tool, const char **marks)
{
    if (tool == TOOL_GPT_OSS) {
        marks[0] = "<|channel|>";
        return REASONING_HARMONY;
    }
    for (size_t i = 0; i < ARRAY_LEN(thought_marks); i++) {
        if (has_mark(s, thought_marks[i].mark) && has_mark(s, thought_marks[i].also)) {
            marks[0] = thought_marks[i].mark;
            marks[1] = thought_marks[i].also;
            return thought_marks[i].kind;
        }
    }
    if (!has_mark(s, "</think>"))
        return REASONING_NONE;
    marks[0] = "</think>";
    return common_thought(s, tool);
}

struct parser_marks parser_detect(struct str template_source, enum tool_kind *tool,
                                  enum reasoning_kind *reasoning)
{
    struct parser_marks ret = {.tool = {NULL}};

    *tool = TOOL_NONE;
    for (size_t i = 0; i < ARRAY_LEN(tool_marks) && *tool == TOOL_NONE; i++) {
        if (has_mark(template_source, tool_marks[i].mark) &&
            has_mark(template_source, tool_marks[i].also)) {
            *tool = tool_marks[i].kind;
            ret.tool[0] = tool_marks[i].mark;
            ret.tool[1] = tool_marks[i].also;
        }
    }
    *reasoning = detect_reasoning(template_source, *tool, ret.reasoning);
    return ret;
}
