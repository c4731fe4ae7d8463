#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "file_text.h"
#include "testing.h"
#include "worker/text/parsers/core.h"
#include "worker/text/parsers/parser.h"

TEST(kinds, names_of_engines_are_known)
{
    static const struct {
        const char *name;
        enum tool_kind kind;
    } tools[] = {{"hermes", TOOL_HERMES},           {"qwen25", TOOL_HERMES},
                 {"Qwen3-Coder", TOOL_QWEN3_CODER}, {"deepseekv31", TOOL_DEEPSEEK_V31},
                 {"gpt-oss", TOOL_GPT_OSS},         {"minimax-m2", TOOL_MINIMAX_M2},
                 {"llama3", TOOL_LLAMA3_JSON},      {"none", TOOL_NONE}};
    enum tool_kind tool;
    enum reasoning_kind reasoning;

    for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
        cr_assert_eq(tool_kind_named(str_cstr(tools[i].name), &tool), 0, "%s", tools[i].name);
        cr_assert_eq(tool, tools[i].kind, "%s", tools[i].name);
    }
    cr_assert_eq(tool_kind_named(STR("hermes2"), &tool), -1);
    cr_assert_eq(tool_kind_named(STR(""), &tool), -1);
    for (int k = 0; k < TOOL_KIND_COUNT; k++) {
        cr_assert_eq(tool_kind_named(str_cstr(tool_kind_name((enum tool_kind)k)), &tool), 0);
        cr_assert_eq((int)tool, k);
    }
    for (int k = 0; k < REASONING_KIND_COUNT; k++) {
        const char *name = reasoning_kind_name((enum reasoning_kind)k);

        cr_assert_eq(reasoning_kind_named(str_cstr(name), &reasoning), 0);
        cr_assert_eq((int)reasoning, k);
    }
}

/* The end of a prompt is searched for tags within a limited number of bytes (step_render.c). */
TEST(kinds, no_tag_of_a_thought_is_too_long)
{
    for (int k = 0; k < REASONING_KIND_COUNT; k++) {
        const struct think_tags *t = think_tags_of((enum reasoning_kind)k);

        for (size_t i = 0; i < ARRAY_LEN(t->start) && t->start[i]; i++)
            cr_assert_leq(strlen(t->start[i]), PARSER_TAG_MAX, "%s", t->start[i]);
        for (size_t i = 0; i < ARRAY_LEN(t->end) && t->end[i]; i++)
            cr_assert_leq(strlen(t->end[i]), PARSER_TAG_MAX, "%s", t->end[i]);
    }
}

/* Tests every name of SGLang's and vLLM's lists, in their spelling. */
TEST(kinds, every_name_of_both_engines_is_known)
{
    static const char *const tools =
        "apertus apertus2509 cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 "
        "deepseek_v4 deepseek_v41 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 "
        "deepseek-v4 dots ernie45 functiongemma gemma4 gigachat3 gigachat35 glm glm45 glm47 "
        "glm53_flash gpt-oss granite granite-20b-fc granite4 hermes hunyuan hunyuan_a13b hy_v3 "
        "hy_v4 "
        "hyperclovax_seed_think hyperclovax_seed_think_14b inkling internlm interns1 iquest_q1 "
        "jamba "
        "k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 llama3_json llama4_json llama4_pythonic "
        "longcat mimo minicpm5 minimax minimax-m2 minimax-m3 minimax_m2 minimax_m3 mistral muse "
        "muse_glimmer nanbeige olmo3 openai phi4_mini_json plamo3 poolside_v1 pythonic qwen qwen25 "
        "qwen3_coder qwen3_xml seed_oss solar_open2 spark25 step3 step3p5 trinity xlam";
    static const char *const thoughts =
        "apertus2509 cohere_command3 cohere_command4 deepseek-r1 deepseek-v3 deepseek-v4 "
        "deepseek-v41 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 dots ernie45 gemma4 "
        "gigachat35 glm45 glm47 gpt-oss granite granite_thinking_parser holo2 hunyuan hunyuan_a13b "
        "hy_v3 hy_v4 inkling interns1 iquest_q1 k2_horizon kimi kimi_k2 kimi_k3 ling3 mimo minimax "
        "minimax-append-think minimax-m3 minimax_m2 minimax_m2_append_think minimax_m3 mistral "
        "muse "
        "muse_glimmer nanbeige nemotron_3 nemotron_v3 olmo3 openai_gptoss plamo3 poolside_v1 qwen3 "
        "qwen3-thinking seed_oss solar_open2 step3 step3p5";
    enum reasoning_kind reasoning;
    enum tool_kind tool;

    for (struct str s = str_cstr(tools); s.len;) {
        size_t n = str_find(s, STR(" "), 0);
        struct str word = str_sub(s, 0, n);

        cr_expect_eq(tool_kind_named(word, &tool), 0, "%.*s", (int)word.len, word.p);
        s = str_sub(s, word.len + 1, s.len);
    }
    for (struct str s = str_cstr(thoughts); s.len;) {
        size_t n = str_find(s, STR(" "), 0);
        struct str word = str_sub(s, 0, n);

        cr_expect_eq(reasoning_kind_named(word, &reasoning), 0, "%.*s", (int)word.len, word.p);
        s = str_sub(s, word.len + 1, s.len);
    }
}

/* The error of an unknown name lists all known ones. */
TEST(kinds, the_list_of_names_has_the_others_too)
{
    struct buf b = {0};

    tool_kind_names(&b);
    cr_assert_neq(str_find(buf_str(&b), STR("hermes (qwen qwen25"), 0), SIZE_MAX);
    cr_assert_neq(str_find(buf_str(&b), STR("gemma4"), 0), SIZE_MAX);
    buf_done(&b);
}

TEST(kinds, prompts_that_open_the_thought)
{
    cr_assert_eq(parser_thought(REASONING_QWEN3, STR("<|im_start|>assistant\n<think>\n")),
                 THOUGHT_OPEN);
    cr_assert_eq(parser_thought(REASONING_QWEN3, STR("assistant\n<think>\n\n</think>\n")),
                 THOUGHT_CLOSED);
    cr_assert_eq(parser_thought(REASONING_QWEN3, STR("assistant\n")), THOUGHT_MAYBE);
    cr_assert_eq(parser_thought(REASONING_DEEPSEEK_R1, STR("assistant\n")), THOUGHT_OPEN);
    cr_assert_eq(parser_thought(REASONING_DEEPSEEK_R1, STR("</think>")), THOUGHT_CLOSED);
    cr_assert_eq(parser_thought(REASONING_NONE, STR("<think>")), THOUGHT_MAYBE);
    cr_assert_eq(parser_thought(REASONING_HARMONY, STR("<think>")), THOUGHT_MAYBE);
}

/* The kinds of real templates. Skipped with a message if the shared data is absent. */
TEST(kinds, real_templates)
{
    static const struct {
        const char *file;
        enum tool_kind tool;
        enum reasoning_kind reasoning;
    } want[] = {
        {"lcpp.Qwen-Qwen3-0.6B", TOOL_HERMES, REASONING_QWEN3},
        {"lcpp.Qwen-Qwen2.5-7B-Instruct", TOOL_HERMES, REASONING_NONE},
        {"lcpp.Qwen3-Coder", TOOL_QWEN3_CODER, REASONING_NONE},
        {"lcpp.Qwen3.5-4B", TOOL_QWEN3_CODER, REASONING_QWEN3},
        {"lcpp.GLM-4.6", TOOL_GLM45, REASONING_GLM45},
        {"lcpp.GLM-4.7-Flash", TOOL_GLM47, REASONING_GLM45},
        {"lcpp.deepseek-ai-DeepSeek-V3.1", TOOL_DEEPSEEK_V31, REASONING_QWEN3},
        {"lcpp.deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", TOOL_DEEPSEEK_V3, REASONING_QWEN3},
        {"lcpp.moonshotai-Kimi-K2", TOOL_KIMI_K2, REASONING_NONE},
        {"lcpp.openai-gpt-oss-120b", TOOL_GPT_OSS, REASONING_HARMONY},
        {"miles.kimi_k25_fixed", TOOL_KIMI_K2, REASONING_KIMI_K2},
        {"miles.minimax_m25_fixed", TOOL_MINIMAX_M2, REASONING_MINIMAX},
        {"sglang.deepseekv3", TOOL_DEEPSEEK_V3, REASONING_NONE},
        {"sglang.deepseekv32", TOOL_DEEPSEEK_V31, REASONING_QWEN3},
        {"sglang.llama3.1_json", TOOL_LLAMA3_JSON, REASONING_NONE},
        {"sglang.llama4_pythonic", TOOL_PYTHONIC, REASONING_NONE},
        {"vllm.mistral", TOOL_MISTRAL, REASONING_NONE},
        {"mistral_common.v13_think", TOOL_MISTRAL, REASONING_MISTRAL},
        {"vllm.hermes", TOOL_HERMES, REASONING_NONE},
        {"vllm.template_chatml", TOOL_NONE, REASONING_NONE},
    };
    enum tool_kind tool;
    enum reasoning_kind reasoning;

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct buf b = {0};
        char path[400];

        snprintf(path, sizeof(path), "%s/data/templates/%s.jinja", RG_SHARED, want[i].file);
        if (!file_bytes(path, &b))
            cr_skip_test("no %s", path);
        parser_detect(buf_str(&b), &tool, &reasoning);
        cr_expect_eq(tool, want[i].tool, "%s: %s", want[i].file, tool_kind_name(tool));
        cr_expect_eq(reasoning, want[i].reasoning, "%s: %s", want[i].file,
                     reasoning_kind_name(reasoning));
        buf_done(&b);
    }
}

/* Granite 4.2 and Nemotron 3 share all marks but one. */
TEST(kinds, granite_4_2_and_nemotron_3)
{
#define SHARED "truncate_history_thinking <think> </think> <tool_call> <function=f> <parameter=p>"

    static const struct {
        const char *text;
        enum reasoning_kind reasoning;
    } want[] = {{SHARED " defer_loading", REASONING_GRANITE_THINKING}, {SHARED, REASONING_QWEN3}};
    enum tool_kind tool;
    enum reasoning_kind reasoning;

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        parser_detect(str_cstr(want[i].text), &tool, &reasoning);
        cr_expect_eq(tool, TOOL_QWEN3_CODER);
        cr_expect_eq(reasoning, want[i].reasoning, "%s", reasoning_kind_name(reasoning));
    }
#undef SHARED
}

TEST(kinds, marks_that_vocabularies_have_as_tokens)
{
    static const struct {
        enum tool_kind tool;
        enum reasoning_kind reasoning;
        const char *token;
        bool reads;
    } want[] = {
        {TOOL_NONE, REASONING_NONE, "<tool_call>", false},
        {TOOL_NONE, REASONING_NONE, "<think>", false},
        {TOOL_HERMES, REASONING_NONE, "<tool_call>", true},
        {TOOL_HERMES, REASONING_NONE, "</tool_call>", true},
        {TOOL_HERMES, REASONING_NONE, "</think>", false},
        {TOOL_HERMES, REASONING_QWEN3, "</think>", true},
        {TOOL_HERMES, REASONING_QWEN3, "<|endoftext|>", false},
        {TOOL_DEEPSEEK_V3, REASONING_NONE, "<｜tool▁sep｜>", true},
        {TOOL_DEEPSEEK_V31, REASONING_NONE, "<｜tool▁calls▁end｜>", true},
        {TOOL_DEEPSEEK_V32, REASONING_NONE, "｜DSML｜", true},
        {TOOL_GLM45, REASONING_NONE, "</arg_value>", true},
        {TOOL_GLM47, REASONING_NONE, "<arg_key>", true},
        {TOOL_KIMI_K2, REASONING_NONE, "<|tool_call_argument_begin|>", true},
        {TOOL_MISTRAL, REASONING_MISTRAL, "[ARGS]", true},
        {TOOL_MISTRAL, REASONING_MISTRAL, "[/THINK]", true},
        {TOOL_MISTRAL, REASONING_NONE, "[IMG]", false},
        {TOOL_PYTHONIC, REASONING_NONE, "<|python_end|>", true},
        {TOOL_LLAMA3_JSON, REASONING_NONE, "<|python_tag|>", true},
        {TOOL_LLAMA3_JSON, REASONING_NONE, "<|finetune_right_pad_id|>", false},
        {TOOL_NONE, REASONING_HARMONY, "<|constrain|>", true},
        {TOOL_GPT_OSS, REASONING_NONE, "<|channel|>", true},
        {TOOL_GPT_OSS, REASONING_HARMONY, "<|reserved_200000|>", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct parser_options o = {.tool = want[i].tool, .reasoning = want[i].reasoning};

        cr_expect_eq(parser_reads(&o, str_cstr(want[i].token)), want[i].reads, "%s %s",
                     tool_kind_name(o.tool), want[i].token);
    }
}
