/* A call in the form of each family: the texts before and after a value that may be long. */
#ifndef RG_UNIT_CALL_TEXTS_H
#define RG_UNIT_CALL_TEXTS_H

#include "worker/text/parsers/kinds.h"

/* One form. The payload between `before` and `behind` has letters, blanks, and, if the form allows
 * them, '<' and newlines. */
static const struct call_text {
    enum tool_kind kind;
    const char *before, *behind;
    bool raw; /* the payload may have unescaped newlines and quotes */
} call_texts[] = {
    {TOOL_HERMES, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</tool_call>", false},
    {TOOL_QWEN3_CODER, "<tool_call>\n<function=write>\n<parameter=content>\n",
     "\n</parameter>\n</function>\n</tool_call>", true},
    {TOOL_QWEN3_CODER, "<tool_call>\n<function=read_file>\n<parameter=lines>\n[\"",
     "\"]\n</parameter>\n</function>\n</tool_call>", false},
    {TOOL_LLAMA3_JSON, "{\"name\": \"write\", \"parameters\": {\"content\": \"", "\"}}", false},
    {TOOL_PYTHONIC, "[write(content=\"", "\")]", false},
    {TOOL_PYTHONIC, "[write(content=[{'a': '", "'}, 1])]", false},
    {TOOL_MISTRAL, "[TOOL_CALLS]write[ARGS]{\"content\": \"", "\"}", false},
    {TOOL_MISTRAL, "[TOOL_CALLS] [{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_DEEPSEEK_V3,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{"
     "\"content\":"
     "\"",
     "\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false},
    {TOOL_DEEPSEEK_V31,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write<｜tool▁sep｜>{\"content\": \"",
     "\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false},
    {TOOL_DEEPSEEK_V32,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter "
     "name=\"content\" "
     "string=\"true\">",
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", true},
    {TOOL_DEEPSEEK_V32,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"read_file\">\n<｜DSML｜parameter "
     "name=\"filter\" string=\"false\">{\"k\": \"",
     "\"}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", false},
    {TOOL_GLM45, "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call>", true},
    {TOOL_GLM47, "<tool_call>write<arg_key>other</arg_key><arg_value>[\"",
     "\"]</arg_value></tool_call>", false},
    {TOOL_KIMI_K2,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>"
     "{\"content\": \"",
     "\"}<|tool_call_end|><|tool_calls_section_end|>", false},
    {TOOL_GPT_OSS,
     "<|channel|>commentary to=functions.write <|constrain|>json<|message|>{\"content\": \"",
     "\"}<|call|>", false},
    {TOOL_MINIMAX_M2, "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter name=\"content\">",
     "</parameter>\n</invoke>\n</minimax:tool_call>", true},
    {TOOL_MINIMAX_M3,
     "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"write\">]<]minimax[>[<content>",
     "]<]minimax[>[</content>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>", true},
    {TOOL_GEMMA4, "<|tool_call>call:write{content:<|\"|>", "<|\"|>}<tool_call|>", true},
    {TOOL_FUNCTIONGEMMA, "<start_function_call>call:write{content:<escape>",
     "<escape>}<end_function_call>", true},
    {TOOL_COHERE,
     "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"write\", \"parameters\": "
     "{\"content\": \"",
     "\"}}]<|END_ACTION|>", false},
    {TOOL_LFM2, "<|tool_call_start|>[write(content=\"", "\")]<|tool_call_end|>", false},
    {TOOL_OLMO3, "<function_calls>\nwrite(content=\"", "\")\n</function_calls>", false},
    {TOOL_KIMI_K3,
     "<|open|>tools<|sep|><|open|>call tool=\"write\" index=\"1\"<|sep|><|open|>argument "
     "key=\"content\" type=\"string\"<|sep|>",
     "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>", true},
    {TOOL_JAMBA, "<tool_calls>[{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}]</tool_calls>", false},
    {TOOL_HY_V3, "<tool_calls><tool_call>write<tool_sep>\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call></tool_calls>", true},
    {TOOL_HY_V4,
     "<tool_calls:opensource><tool_call:opensource>write<arg_key:opensource>content"
     "</arg_key:opensource><arg_value:opensource>",
     "</arg_value:opensource></tool_call:opensource></tool_calls:opensource>", true},
    {TOOL_GRANITE, "<|tool_call|>[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_GRANITE_20B_FC, "<function_call> {\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}", false},
    {TOOL_NEMOTRON_NANO_V2, "<TOOLCALL>[{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}]</TOOLCALL>", false},
    {TOOL_SEED_OSS, "<seed:tool_call>\n<function=write>\n<parameter=content>",
     "</parameter>\n</function>\n</seed:tool_call>", true},
    {TOOL_PHI4_MINI, "functools[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_INTERNLM,
     "<|action_start|><|plugin|>\n{\"name\": \"write\", \"parameters\": {\"content\": \"",
     "\"}}<|action_end|>", false},
    {TOOL_ERNIE45, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</tool_call>", false},
    {TOOL_STEP3,
     "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
     "name=\"write\"><steptml:parameter name=\"content\">",
     "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>", true},
    {TOOL_XLAM, "[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]", false},
    {TOOL_APERTUS, "<|tools_prefix|>[{\"write\": {\"content\": \"", "\"}}]<|tools_suffix|>", false},
    {TOOL_GIGACHAT3,
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"write\", \"arguments\": "
     "{\"content\": \"",
     "\"}}", false},
    {TOOL_GIGACHAT35,
     "<｜GCML｜tool_calls>\n<｜GCML｜invoke name=\"write\">\n<｜GCML｜parameter "
     "name=\"content\" string=\"true\">",
     "</｜GCML｜parameter>\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>", true},
    {TOOL_SOLAR,
     "<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>write<|tool_call:args|>{\"content\": \"",
     "\"}<|tool_call:end|>", false},
    {TOOL_SOLAR2, "<|tool_call:start|>write\n<|tool_arg:start|>content<|tool_arg:value|>",
     "<|tool_arg:end|>\n<|tool_call:end|>", true},
    {TOOL_INKLING, "write<|content_invoke_tool_json|>{\"name\":\"write\",\"args\":{\"content\":\"",
     "\"}}<|end_message|>", false},
    {TOOL_LONGCAT, "<longcat_tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</longcat_tool_call>", false},
    {TOOL_DEEPSEEK_V41,
     "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"write\">\n<｜DSML｜ parameter "
     "name=\"content\" string=\"true\">",
     "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", true},
    {TOOL_GLM53_FLASH, "<tool_call>write>{\"content\": \"", "\"}</tool_call>", false},
    {TOOL_HYPERCLOVAX, "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call>", true},
    {TOOL_HYPERCLOVAX_14B,
     " -> tool/function_call\n[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_FUNCTIONARY, "<function=write>{\"content\": \"", "\"}</function>", false},
    {TOOL_FUNCTIONARY_V32, "write\n{\"content\": \"", "\"}", false},
    {TOOL_DOTS, "<dots_function_call><invoke name=\"write\"><parameter name=\"content\">",
     "</parameter></invoke></dots_function_call>", true},
    {TOOL_K2_HORIZON,
     "<ifm|tool_calls><ifm|tool_call>write\n<ifm|arg_key>content</ifm|arg_key>\n<ifm|arg_value>",
     "</ifm|arg_value>\n</ifm|tool_call></ifm|tool_calls>", true},
    {TOOL_IQUEST_Q1, "<iquest_tool_call>write\n<arg_key>content</arg_key><arg_value>",
     "</arg_value></iquest_tool_call>", true},
    {TOOL_PLAMO3,
     "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
     "<|plamo:begin_tool_name:plamo|>write<|plamo:end_tool_name:plamo|>"
     "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"content\": \"",
     "\"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
     "<|plamo:end_tool_requests:plamo|>",
     false},
    {TOOL_MUSE,
     "<atem:function_calls>\n<atem:invoke name=\"write\">\n<atem:parameter name=\"content\">",
     "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", true},
    /* Values in XML are read at their end, because CDATA, entities and white space around them
     * count. */
    {TOOL_MINICPM5, "<function name=\"read_file\"><param name=\"lines\">[\"",
     "\"]</param></function>", false},
};

#endif
