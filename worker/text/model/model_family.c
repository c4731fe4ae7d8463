/*
 * The first family whose marks are all in the template's source is chosen. So families with more
 * marks precede those with fewer ("qwen3" is the last of its relatives), and "default", which has
 * no mark, ends the table. Users' names are compared without case and punctuation. `aliases` has
 * the names that other tools use.
 */
#include "worker/text/model/model_family.h"

#include <ctype.h>

#include "worker/text/template/template.h"

static const struct model_family families[] = {
    {"gpt-oss", {"<|channel|>", "<|start|>"}, {0}, NULL, false, "gpt_oss", "harmony", false},
    {"deepseek-v3.x",
     {"<\xef\xbd\x9c"
      "Assistant\xef\xbd\x9c>"},
     {0},
     "drop_thinking",
     false,
     NULL,
     NULL,
     false},
    {"glm4.7",
     {"<|observation|>", "<|user|>", "<arg_key>"},
     {0},
     "clear_thinking",
     false,
     NULL,
     NULL,
     false},
    {"kimi-k2.x", {"<|im_middle|>"}, {0}, "preserve_thinking", true, "kimi_k2", NULL, false},
    {"minimax-m2.x", {"[e~["}, {0}, "clear_thinking", false, NULL, NULL, true},
    {"nemotron3",
     {"truncate_history_thinking"},
     {0},
     "truncate_history_thinking",
     false,
     NULL,
     NULL,
     false},
    {"llama3", {"<|start_header_id|>"}, {0}, NULL, false, NULL, NULL, false},
    {"mistral", {"[INST]"}, {0}, NULL, false, NULL, NULL, false},
    {"qwen3.5",
     {"<|im_start|>", "<function=", "<think>"},
     {0},
     "clear_thinking",
     false,
     NULL,
     NULL,
     true},
    {"qwen3-next",
     {"<|im_start|>assistant\\n<think>\\n'", "</think>"},
     {"enable_thinking"},
     "clear_thinking",
     false,
     NULL,
     NULL,
     false},
    {"qwen3", {"<|im_start|>", "<think>"}, {0}, "clear_thinking", false, NULL, NULL, false},
    {"default", {0}, {0}, NULL, false, NULL, NULL, false},
};

static bool has_marks(const struct template *t, const struct model_family *f)
{
    struct str s = template_source(t);

    for (size_t i = 0; i < ARRAY_LEN(f->marks) && f->marks[i]; i++) {
        if (str_find(s, str_cstr(f->marks[i]), 0) == SIZE_MAX)
            return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(f->without) && f->without[i]; i++) {
        if (str_find(s, str_cstr(f->without[i]), 0) != SIZE_MAX)
            return false;
    }
    return true;
}

const struct model_family *family_detect(const struct template *t)
{
    const struct model_family *f = families;

    while (!has_marks(t, f)) /* ends at the last family, which has no marks */
        f++;
    return f;
}

const struct model_family *model_family_at(size_t i)
{
    return i < ARRAY_LEN(families) ? &families[i] : NULL;
}

static int next_letter(const char **p)
{
    while (**p == '-' || **p == '_' || **p == '.')
        ++*p;
    return **p ? tolower((unsigned char)*(*p)++) : 0;
}

static bool is_same_family(const char *a, const char *b)
{
    for (;;) {
        int x = next_letter(&a), y = next_letter(&b);

        if (x != y)
            return false;
        if (!x)
            return true;
    }
}

const struct model_family *family_named(const char *name)
{
    static const struct {
        const char *alias, *name;
    } aliases[] = {{"qwen35", "qwen3.5"},
                   {"qwennext", "qwen3-next"},
                   {"glm47", "glm4.7"},
                   {"kimi25", "kimi-k2.x"},
                   {"kimi26", "kimi-k2.x"},
                   {"kimi-k2.5", "kimi-k2.x"},
                   {"kimi-k2.6", "kimi-k2.x"},
                   {"minimax_m25", "minimax-m2.x"},
                   {"minimax_m27", "minimax-m2.x"},
                   {"minimax-m2", "minimax-m2.x"},
                   {"deepseek-v3", "deepseek-v3.x"},
                   {"deepseek-v3.1", "deepseek-v3.x"},
                   {"deepseekv32", "deepseek-v3.x"}};

    for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
        if (is_same_family(name, aliases[i].alias))
            name = aliases[i].name;
    }
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (is_same_family(name, families[i].name))
            return &families[i];
    }
    return NULL;
}

const char *family_names(void)
{
    return "qwen3, qwen3.5, qwen3-next, glm4.7, nemotron3, kimi-k2.x, minimax-m2.x, deepseek-v3.x, "
           "gpt-oss, llama3, mistral, default";
}
