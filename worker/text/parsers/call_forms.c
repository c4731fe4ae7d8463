/*
 * One row for each way to write calls. A row's texts are gbnf expressions: literals in quotes, `ws`
 * for blanks, %n, %a, %k and %v as placeholders for tool_grammar.c. Macros are for forms that many
 * families share: an object with name and arguments, a list of such objects, keys and values in
 * tags, parameters with names.
 *
 * A row must allow only what the family's parser can read, and should allow what its models write.
 * The parsers have a table of their own (families.c). Tests make the shortest answer of each row
 * and give it to the parser.
 */
#include "worker/text/parsers/call_forms.h"

#include "common/base/attrs.h"

/* Members of the object as which several families write a call. */
#define NAME_MEMBER "\"\\\"name\\\"\" ws \":\" ws \"\\\"%n\\\"\" ws \",\" ws "
#define ARGUMENTS_MEMBER "\"\\\"arguments\\\"\" ws \":\" ws %a "

/* An object, and lists of such. */
#define JSON_CALL(members) "\"{\" ws " members "ws \"}\" "
#define PLAIN_CALL JSON_CALL(NAME_MEMBER ARGUMENTS_MEMBER)
#define LIST_FORM(before, behind)                                              \
    .open = before "\"[\" ws ", .call = PLAIN_CALL, .between = "ws \",\" ws ", \
    .close = "ws \"]\" " behind

/* Keys and values in tags of their own. */
#define KEY_VALUE(begin, word, suffix, rest, end)                                              \
    .args = ARGS_TAGS, .call = "\"" begin "%n" rest "\" ws %a \"" end "\" ", .between = "ws ", \
    .text_param = "\"<" word "_key" suffix ">%k</" word "_key" suffix ">\" ws \"<" word        \
                  "_value" suffix ">\" %v \"</" word "_value" suffix ">\" ws ",                \
    .text_end = {"</" word "_value" suffix ">"}

/* Parameters with their names as attributes. */
#define NAMED_PARAMS(invoke, param)                                                            \
    .args = ARGS_TAGS, .call = "\"<" invoke " name=\\\"%n\\\">\" ws %a \"</" invoke ">\" ",    \
    .between = "ws ", .text_param = "\"<" param " name=\\\"%k\\\">\" %v \"</" param ">\" ws ", \
    .text_end = {"</" param ">"}

const struct call_form call_forms[] = {
    {
        .kind = TOOL_HERMES,
        .call = "\"<tool_call>\" ws \"{\" ws " NAME_MEMBER ARGUMENTS_MEMBER
                "ws \"}\" ws \"</tool_call>\" ",
        .between = "ws ",
    },
    {
        .kind = TOOL_QWEN3_CODER,
        .args = ARGS_TAGS,
        .open = "\"<tool_call>\" ws ",
        .call = "\"<function=%n>\" ws %a \"</function>\" ws ",
        .between = "( \"</tool_call>\" ws \"<tool_call>\" ws )? ",
        .close = "\"</tool_call>\" ",
        .text_param = "\"<parameter=%k>\\n\" ( %v \"\\n\" )? \"</parameter>\" ws ",
        .json_param = "\"<parameter=%k>\\n\" %v \"\\n</parameter>\" ws ",
        .text_end = {"</parameter>", "<parameter=", "</function>"},
    },
    {
        .kind = TOOL_LLAMA3_JSON,
        .open = "\"<|python_tag|>\"? ",
        .call = "\"{\" ws " NAME_MEMBER
                "( \"\\\"parameters\\\"\" | \"\\\"arguments\\\"\" ) ws \":\" ws %a ws \"}\" ",
        .between = "ws \";\" ws ",
    },
    {
        .kind = TOOL_PYTHONIC,
        .args = ARGS_PYTHON,
        .open = "\"<|python_start|>\"? \"[\" ws ",
        .call = "\"%n(\" ws %a ws \")\" ",
        .between = "ws \",\" ws ",
        .close = "ws \"]\" \"<|python_end|>\"? ",
    },
    {
        .kind = TOOL_MISTRAL,
        .open = "\"[TOOL_CALLS]\" ws \"[\" ws ",
        .call = "\"{\" ws " NAME_MEMBER ARGUMENTS_MEMBER
                "( ws \",\" ws \"\\\"id\\\"\" ws \":\" ws string )? ws \"}\" ",
        .between = "ws \",\" ws ",
        .close = "ws \"]\" ",
    },
    {
        .kind = TOOL_MISTRAL,
        .call = "\"[TOOL_CALLS]\" ws \"%n\" ( \"[CALL_ID]\" [a-zA-Z0-9]{9} )? \"[ARGS]\"? %a ",
    },
    {
        .kind = TOOL_DEEPSEEK_V3,
        .open = "\"<｜tool▁calls▁begin｜>\" ",
        .call = "\"<｜tool▁call▁begin｜>function<｜tool▁sep｜>%n\\n```json\\n\" ws %a ws "
                "\"```<｜tool▁call▁end｜>\" ",
        .between = "ws ",
        .close = "ws \"<｜tool▁calls▁end｜>\" ",
    },
    {
        .kind = TOOL_DEEPSEEK_V31,
        .open = "\"<｜tool▁calls▁begin｜>\" ",
        .call = "\"<｜tool▁call▁begin｜>%n<｜tool▁sep｜>\" ws %a ws \"<｜tool▁call▁end｜>\" ",
        .between = "ws ",
        .close = "ws \"<｜tool▁calls▁end｜>\" ",
    },

#define DSML_FORM(family, mark, section, space)                                                  \
    {                                                                                            \
        .kind = family, .args = ARGS_TAGS, .open = "\"<" mark section ">\" ws ",                 \
        .call = "\"<" mark space "invoke name=\\\"%n\\\">\" ws %a \"</" mark space "invoke>\" ", \
        .between = "ws ", .close = "ws \"</" mark section ">\" ",                                \
        .text_param = "\"<" mark space "parameter name=\\\"%k\\\" string=\\\"true\\\">\" %v "    \
                      "\"</" mark space "parameter>\" ws ",                                      \
        .json_param = "\"<" mark space "parameter name=\\\"%k\\\" string=\\\"false\\\">\" %v "   \
                      "\"</" mark space "parameter>\" ws ",                                      \
        .text_end = {"</" mark space "parameter>"},                                              \
    }
    DSML_FORM(TOOL_DEEPSEEK_V32, "｜DSML｜", "function_calls", ""),
    DSML_FORM(TOOL_DEEPSEEK_V32, "｜DSML｜", "tool_calls", ""),
    DSML_FORM(TOOL_DEEPSEEK_V41, "｜DSML｜", " calls", " "),
    DSML_FORM(TOOL_GIGACHAT35, "｜GCML｜", "tool_calls", ""),
#undef DSML_FORM
    {
        .kind = TOOL_GLM45,
        .args = ARGS_TAGS,
        .call = "\"<tool_call>%n\" \"\\n\" ws %a \"</tool_call>\" ",
        .between = "ws ",
        .text_param = "\"<arg_key>%k</arg_key>\" ws \"<arg_value>\" %v \"</arg_value>\" ws ",
        .text_end = {"</arg_value>"},
    },
    {
        .kind = TOOL_GLM47,
        .args = ARGS_TAGS,
        .call = "\"<tool_call>%n\" ws %a \"</tool_call>\" ",
        .between = "ws ",
        .text_param = "\"<arg_key>%k</arg_key>\" ws \"<arg_value>\" %v \"</arg_value>\" ws ",
        .text_end = {"</arg_value>"},
    },
    {
        .kind = TOOL_KIMI_K2,
        .open = "\"<|tool_calls_section_begin|>\" ws ",
        .call = "\"<|tool_call_begin|>\" ws \"functions.\"? \"%n:\" [0-9]{1,5} ws "
                "\"<|tool_call_argument_begin|>\" ws %a ws \"<|tool_call_end|>\" ",
        .between = "ws ",
        .close = "ws \"<|tool_calls_section_end|>\" ",
    },
    {
        .kind = TOOL_GPT_OSS,
        .call = "( \"<|channel|>commentary to=functions.%n\" | "
                "\" to=functions.%n<|channel|>commentary\" ) \" \"? "
                "( \"<|constrain|>\"? \"json\" )? \"<|message|>\" ws %a \"<|call|>\"? ",
        .single = true,
    },
    {
        .kind = TOOL_MINIMAX_M2,
        .args = ARGS_TAGS,
        .open = "\"<minimax:tool_call>\" ws ",
        .call = "\"<invoke name=\\\"%n\\\">\" ws %a \"</invoke>\" ",
        .between = "ws ",
        .close = "ws \"</minimax:tool_call>\" ",
        .text_param = "\"<parameter name=\\\"%k\\\">\" %v \"</parameter>\" ws ",
        .text_end = {"</parameter>"},
    },
    {.kind = TOOL_ERNIE45,
     .call = "\"<tool_call>\" ws " PLAIN_CALL "ws \"</tool_call>\" ",
     .between = "ws "},
    {.kind = TOOL_LONGCAT,
     .call = "\"<longcat_tool_call>\" ws " PLAIN_CALL "ws \"</longcat_tool_call>\" ",
     .between = "ws "},
    {.kind = TOOL_GRANITE_20B_FC, .call = "\"<function_call>\" ws " PLAIN_CALL, .between = "ws "},
    {.kind = TOOL_INTERNLM,
     .call = "\"<|action_start|><|plugin|>\" ws " JSON_CALL(
         NAME_MEMBER "\"\\\"parameters\\\"\" ws \":\" ws %a ") "ws \"<|action_end|>\" ",
     .between = "ws "},
    {.kind = TOOL_GIGACHAT3,
     .call = "( \"<|function_call|>\" | \"<|message_sep|>\\n\\nfunction call<|role_sep|>\\n\" "
             "| \"function call<|role_sep|>\\n\" ) " PLAIN_CALL,
     .between = "ws "},
    {.kind = TOOL_INKLING,
     .call = "( \"<|message_model|>\"? \"%n\" )? \"<|content_invoke_tool_json|>\" " JSON_CALL(
         NAME_MEMBER "\"\\\"args\\\"\" ws \":\" ws %a ") "\"<|end_message|>\" ",
     .between = ""},
    {.kind = TOOL_XLAM, LIST_FORM("", "")},
    {.kind = TOOL_JAMBA, LIST_FORM("\"<tool_calls>\" ws ", "ws \"</tool_calls>\" ")},
    {.kind = TOOL_GRANITE, LIST_FORM("\"<|tool_call|>\" ws ", "")},
    {.kind = TOOL_NEMOTRON_NANO_V2, LIST_FORM("\"<TOOLCALL>\" ws ", "ws \"</TOOLCALL>\" ")},
    {.kind = TOOL_PHI4_MINI, LIST_FORM("\"functools\" ", "")},
    {.kind = TOOL_HYPERCLOVAX_14B, LIST_FORM("\" -> tool/function_call\\n\" ", "")},
    {.kind = TOOL_COHERE,
     .open = "\"<|START_ACTION|>\" ws \"[\" ws ",
     .call = JSON_CALL("( \"\\\"tool_call_id\\\"\" ws \":\" ws \"\\\"\" [0-9]{1,4} \"\\\"\" "
                       "ws \",\" ws )? \"\\\"tool_name\\\"\" ws \":\" ws \"\\\"%n\\\"\" ws \",\" "
                       "ws \"\\\"parameters\\\"\" ws \":\" ws %a "),
     .between = "ws \",\" ws ",
     .close = "ws \"]\" ws \"<|END_ACTION|>\" "},
    {.kind = TOOL_APERTUS,
     .open = "\"<|tools_prefix|>\" ws \"[\" ws ",
     .call = JSON_CALL("\"\\\"%n\\\"\" ws \":\" ws %a "),
     .between = "ws \",\" ws ",
     .close = "ws \"]\" ws \"<|tools_suffix|>\" "},
    {.kind = TOOL_SOLAR,
     .open = "\"<|tool_calls|>\" ",
     .call =
         "\"<|tool_call:begin|>\" [a-zA-Z0-9_-]{1,40} \"<|tool_call:name|>%n<|tool_call:args|>\" "
         "ws %a ws \"<|tool_call:end|>\" ",
     .between = "ws "},
    {.kind = TOOL_PLAMO3,
     .open = "\"<|plamo:begin_tool_requests:plamo|>\" ",
     .call = "\"<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>%n"
             "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
             "<|plamo:constrain|>json<|plamo:msg|>\" ws %a ws \"<|plamo:end_tool_arguments:plamo|>"
             "<|plamo:end_tool_request:plamo|>\" ",
     .between = "ws ",
     .close = "\"<|plamo:end_tool_requests:plamo|>\" "},
    {.kind = TOOL_FUNCTIONARY,
     .call = "\"<function=%n>\" %a ws \"</function>\" ",
     .between = "ws "},
    {.kind = TOOL_FUNCTIONARY_V32, .call = "\">>>\"? \"%n\\n\" %a ", .between = "ws \">>>\" "},
    {.kind = TOOL_GLM53_FLASH, KEY_VALUE("<tool_call>", "arg", "", "", "</tool_call>")},
    {.kind = TOOL_HYPERCLOVAX, KEY_VALUE("<tool_call>", "arg", "", "\\n", "</tool_call>")},
    {.kind = TOOL_IQUEST_Q1,
     KEY_VALUE("<iquest_tool_call>", "arg", "", "\\n", "</iquest_tool_call>")},
    {.kind = TOOL_K2_HORIZON,
     .open = "\"<ifm|tool_calls>\" ws ",
     .close = "ws \"</ifm|tool_calls>\" ",
     KEY_VALUE("<ifm|tool_call>", "ifm|arg", "", "\\n", "</ifm|tool_call>")},
    {.kind = TOOL_HY_V3,
     .open = "\"<tool_calls>\" ws ",
     .close = "ws \"</tool_calls>\" ",
     KEY_VALUE("<tool_call>", "arg", "", "<tool_sep>", "</tool_call>")},
    {.kind = TOOL_HY_V4,
     .open = "\"<tool_calls:opensource>\" ws ",
     .close = "ws \"</tool_calls:opensource>\" ",
     KEY_VALUE("<tool_call:opensource>", "arg", ":opensource", "", "</tool_call:opensource>")},
    {.kind = TOOL_SOLAR2,
     .args = ARGS_TAGS,
     .call = "\"<|tool_call:start|>%n\\n\" %a \"<|tool_call:end|>\" ",
     .between = "ws ",
     .text_param = "\"<|tool_arg:start|>%k<|tool_arg:value|>\" %v \"<|tool_arg:end|>\" ws ",
     .text_end = {"<|tool_arg:end|>", "<|tool_arg:start|>", "<|tool_call:end|>"}},
    {.kind = TOOL_KIMI_K3,
     .args = ARGS_TAGS,
     .open = "\"<|open|>tools<|sep|>\" ",
     .call = "\"<|open|>call tool=\\\"%n\\\" index=\\\"\" [0-9]{1,4} \"\\\"<|sep|>\" %a "
             "\"<|close|>call<|sep|>\" ",
     .between = "",
     .close = "\"<|close|>tools<|sep|>\" ",
     .text_param = "\"<|open|>argument key=\\\"%k\\\" type=\\\"string\\\"<|sep|>\" %v "
                   "\"<|close|>argument<|sep|>\" ",
     .json_param = "\"<|open|>argument key=\\\"%k\\\" type=\\\"\" ( \"number\" | \"boolean\" | "
                   "\"object\" | \"array\" | \"null\" ) \"\\\"<|sep|>\" %v "
                   "\"<|close|>argument<|sep|>\" ",
     .text_end = {"<|close|>argument<|sep|>"}},
    {.kind = TOOL_DOTS,
     .open = "\"<dots_function_call>\" ws ",
     .close = "ws \"</dots_function_call>\" ",
     NAMED_PARAMS("invoke", "parameter")},
    {.kind = TOOL_MUSE,
     .open = "\"<atem:function_calls>\" ws ",
     .close = "ws \"</atem:function_calls>\" ",
     NAMED_PARAMS("atem:invoke", "atem:parameter")},
    {.kind = TOOL_STEP3,
     .open = "\"<｜tool_calls_begin｜>\" ws ",
     .close = "ws \"<｜tool_calls_end｜>\" ",
     .args = ARGS_TAGS,
     .call = "\"<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\\\"%n\\\">\" ws "
             "%a \"</steptml:invoke><｜tool_call_end｜>\" ",
     .between = "ws ",
     .text_param = "\"<steptml:parameter name=\\\"%k\\\">\" %v \"</steptml:parameter>\" ws ",
     .text_end = {"</steptml:parameter>"}},
    {.kind = TOOL_MINICPM5,
     .args = ARGS_TAGS,
     .call = "\"<function name=\\\"%n\\\">\" ws %a \"</function>\" ",
     .between = "ws ",
     .text_param = "\"<param name=\\\"%k\\\">\" %v \"</param>\" ws ",
     .text_end = {"<", "&"}},
    {.kind = TOOL_SEED_OSS,
     .args = ARGS_TAGS,
     .open = "\"<seed:tool_call>\" ws ",
     .call = "\"<function=%n>\" ws %a \"</function>\" ws ",
     .between = "( \"</seed:tool_call>\" ws \"<seed:tool_call>\" ws )? ",
     .close = "\"</seed:tool_call>\" ",
     .text_param = "\"<parameter=%k>\" %v \"</parameter>\" ws ",
     .text_end = {"</parameter>", "<parameter=", "</function>"}},
    {.kind = TOOL_MINIMAX_M3,
     .args = ARGS_TAGS,
     .open = "\"]<]minimax[>[<tool_call>\" ws ",
     .call = "\"]<]minimax[>[<invoke name=\\\"%n\\\">\" ws %a \"]<]minimax[>[</invoke>\" ",
     .between = "ws ",
     .close = "ws \"]<]minimax[>[</tool_call>\" ",
     .text_param = "\"]<]minimax[>[<%k>\" %v \"]<]minimax[>[</%k>\" ws ",
     .text_end = {"]<]minimax[>["}},
    {.kind = TOOL_LFM2,
     .args = ARGS_PYTHON,
     .open = "\"<|tool_call_start|>[\" ws ",
     .call = "\"%n(\" ws %a ws \")\" ",
     .between = "ws \",\" ws ",
     .close = "ws \"]<|tool_call_end|>\" "},
    {.kind = TOOL_OLMO3,
     .args = ARGS_PYTHON,
     .open = "\"<function_calls>\" ws ",
     .call = "\"%n(\" ws %a ws \")\" ",
     .between = "\"\\n\" ",
     .close = "ws \"</function_calls>\" "},
    {.kind = TOOL_GEMMA4,
     .args = ARGS_BARE,
     .call = "\"<|tool_call>call:%n{\" %a \"}<tool_call|>\" ",
     .between = "",
     .text_end = {"<|\"|>"}},
    {.kind = TOOL_FUNCTIONGEMMA,
     .args = ARGS_BARE,
     .call = "\"<start_function_call>call:%n{\" %a \"}<end_function_call>\" ",
     .between = "",
     .text_end = {"<escape>"}},
};

const size_t n_call_forms = ARRAY_LEN(call_forms);
