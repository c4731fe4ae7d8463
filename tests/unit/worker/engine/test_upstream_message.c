/* Answers of OpenAI-compatible servers in their many forms are read into one form. */
#include "worker/engine/wire/upstream_message.h"

#include <stdlib.h>

#include "common/base/buf.h"
#include "common/codec/json_build.h"
#include "testing.h"

/* Prints the messages: text unchanged, a thought in <>, a call as " [N ID NAME ARGUMENTS", with
 * later pieces after "+". */
static void print_messages(const struct json *list, struct buf *out)
{
    for (size_t i = 0; json_at(list, i); i++) {
        const struct json *m = json_at(list, i), *call = json_at(json_get(m, "tool_calls"), 0);
        const struct json *f = json_get(call, "function");
        struct str thought = json_string(json_get(m, "reasoning_content"));

        if (thought.len)
            buf_printf(out, "<%.*s>", (int)thought.len, thought.p);
        buf_add_str(out, json_string(json_get(m, "content")));
        if (json_get(f, "name")) {
            buf_puts(out, " [");
            buf_add_str(out, json_text(json_get(call, "index")));
            buf_add_c(out, ' ');
            buf_add_str(out, json_string(json_get(call, "id")));
            buf_add_c(out, ' ');
            buf_add_str(out, json_string(json_get(f, "name")));
            buf_add_c(out, ' ');
        } else if (call) {
            buf_add_c(out, '+');
        }
        buf_add_str(out, json_string(json_get(f, "arguments")));
    }
}

static struct buf got;

/* Reads choices[0] of each document and then the end. Documents are separated by '|' and have '
 * instead of ". Returns the printed messages, or the error. */
static const char *read_all(const char *docs, bool stream)
{
    struct upstream_message m = {0};
    struct arena a = {0};
    struct err e = {0};
    int rc = 0;
    char *text = arena_cstr(&a, str_cstr(docs)), *next;

    buf_clear(&got);
    for (char *p = text; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    for (char *p = text; p && rc == 0; p = next) {
        struct json list = json_empty(JSON_ARRAY);
        struct upstream_out out = {&a, &list, stream};
        const struct json *choice = NULL;

        next = strchr(p, '|');
        if (next)
            *next++ = '\0';
        cr_assert_eq(json_parse(&a, str_cstr(p), &choice, &e), 0, "%s: %s", p, e.text);
        rc = upstream_message_add(&m, choice, &out, &e);
        if (rc == 0 && !next)
            rc = upstream_message_end(&m, &out, &e);
        print_messages(&list, &got);
        if (next)
            buf_add_c(&got, '|');
    }
    if (rc < 0) {
        buf_clear(&got);
        buf_puts(&got, e.text + strlen("the engine's answer is invalid: "));
    } else {
        struct buf members = {0};
        struct json_out kept = json_out_to(&members);

        upstream_signed_write(&m.signed_members, &kept);
        if (!str_eq_c(buf_str(&members), "null"))
            buf_printf(&got, " %.*s", (int)members.len, members.p);
        buf_done(&members);
    }
    for (size_t i = 0; i < got.len; i++)
        got.p[i] = got.p[i] == '"' ? '\'' : got.p[i];
    upstream_message_done(&m);
    arena_done(&a);
    buf_add_c(&got, '\0');
    return got.p;
}

#define DELTA(x) "{'delta':{" x "}}"
#define CALLS(x) DELTA("'tool_calls':[" x "]")
#define MESSAGE(x) "{'message':{" x "}}"
#define F(name, arguments) "'function':{'name':'" name "','arguments':'" arguments "'}}"
#define ARGUMENTS(text) "'function':{'arguments':'" text "'}}"

struct form {
    const char *docs, *want;
};

static void expect_all(bool stream, const struct form *forms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *now = read_all(forms[i].docs, stream);

        cr_expect_str_eq(now, forms[i].want, "%s\n    is %s\nnot   %s", forms[i].docs, now,
                         forms[i].want);
    }
}

#define EXPECT_ALL(stream, forms) expect_all(stream, forms, sizeof(forms) / sizeof(*(forms)))

TEST(upstream_message, calls_go_out_one_after_the_other)
{
    static const struct form forms[] = {
        {CALLS("{'index':0,'id':'a'," F("f", "[")) "|" CALLS(
             "{'index':1,'id':'b'"
             "," F(
                 "g",
                 "{")) "|" CALLS("{'index':0," ARGUMENTS("1]")) "|" CALLS("{'index':"
                                                                          "1," ARGUMENTS(
                                                                              "}")) "|" DELTA("'con"
                                                                                              "tent"
                                                                                              "':'"
                                                                                              "end"
                                                                                              "'"),
         " [0 a f [||+1] [1 b g {|+}|end"},
        /* Text and a second call wait for a call without arguments, because arguments may follow.
         */
        {CALLS("{'index':3,'id':'a'," F("f", "")) "|" DELTA(
             "'content':'T','reasoning':'R'") "|" CALLS("{'index':7,"
                                                        "'id':'b'"
                                                        "," F("g", "{}")),
         " [0 a f ||<R>T [1 b g {}"},
        /* Brackets in strings do not count. */
        {CALLS("{'index':0,'id':'a'," F("f", "{\\'k\\':\\'\\\\\\'}\\'")) "|" CALLS(
             "{'index':1,'id':'b'," F("g", "{}")) "|" CALLS("{'index':0," ARGUMENTS("}")),
         " [0 a f {'k':'\\'}'||+} [1 b g {}"},
    };

    EXPECT_ALL(true, forms);
}

TEST(upstream_message, a_call_is_known_by_its_id_or_its_index_or_its_place)
{
    static const struct form forms[] = {
        /* Gemini: every call has index 0. */
        {CALLS("{'index':0,'id':'a'," F("f", "{}") ",{'index':0,'id':'b'," F("f", "{}")),
         " [0 a f {} [1 b f {}"},
        {CALLS("{'index':0,'id':'a'," F("f", "{")) "|" CALLS("{'index':0,'id':'b'," F(
             "g",
             "[")) "|" CALLS("{'index':0,'id':'a'," ARGUMENTS("}")) "|" CALLS("{'index':"
                                                                              "0," ARGUMENTS("]")),
         " [0 a f {||+} [1 b g [|+]"},
        /* Without ids: complete arguments end a call. */
        {CALLS("{'index':0," F("f", "{}")) "|" CALLS("{'index':0," F("f", "{}")),
         " [0  f {}| [1  f {}"},
        {CALLS("{'id':'a'," F("f", "{") ",{'id':'b'," F("g", "")) "|" CALLS("{" ARGUMENTS("}")),
         " [0 a f {| [1 b g }"},
        {CALLS("{" F("f", "") ",{" F("f", "")), " [0  f  [1  f "},
        {CALLS("{" F("f", "{")) "|" CALLS("{" F("f", "}")), " [0  f {|+}"},
        {CALLS("{'id':'a'," F("f", "{}")) "|" CALLS("{'id':'b'," F("f", "{}")),
         " [0 a f {}| [1 b f {}"},
        /* A repeated name, ids that change (vLLM 0.6), and a name that arrives later. */
        {CALLS("{'index':0,'id':'a'," F("f", "{")) "|" CALLS("{'index':0,'id':''," F("f", "}")),
         " [0 a f {|+}"},
        {CALLS("{'index':1,'id':'a'," F("f", "{")) "|" CALLS("{'index':1,'id':'b'," ARGUMENTS("}")),
         " [0 a f {|+}"},
        {CALLS("{'index':0,'id':'a'}") "|" CALLS("{'index':0," F("f", "{}")), "| [0 a f {}"},
        {CALLS("{'index':0,'id':'a'," F("f", "{")) "|" CALLS("{'index':0," F("g", "}")),
         "choices[0].delta.tool_calls[0].function.name is not the one that the call began with"},
        {CALLS("{'index':0,'id':'a'}"), "tool call 0 has no name"},
        {CALLS("{'id':'a'," F("f", "{")) "|" CALLS("{" ARGUMENTS("1") ",{" ARGUMENTS("2")),
         "choices[0].delta.tool_calls[0] has no index and no id, so its call is unknown"},
        {CALLS("{'index':-1}"),
         "choices[0].delta.tool_calls[0].index must be an integer of 0 or more"},
        {CALLS("{'index':'0'}"),
         "choices[0].delta.tool_calls[0].index must be an integer of 0 or more"},
        {CALLS("7"), "choices[0].delta.tool_calls[0] must be an object"},
        {DELTA("'tool_calls':7"), "choices[0].delta.tool_calls must be a list"},
        /* A call that is repeated at the end. */
        {CALLS("{'index':0,'id':'a'," F("f", "{}")) "|" CALLS("{'index':0,'id':'a'," F("f", "{}")),
         "choices[0].delta.tool_calls[0].function.arguments go on after their end"},
    };
    static const struct form whole[] = {
        {MESSAGE("'tool_calls':[{'index':0,'id':'a'," F("f", "") ",{'index':0,'id':'a'," F(
             "f", "{}") "]"),
         " [0 a f  [1 a f {}"},
        {MESSAGE("'tool_calls':[{'id':'a'," F("", "{}") "]"), "tool call 0 has no name"},
    };

    EXPECT_ALL(true, forms);
    EXPECT_ALL(false, whole);
}

TEST(upstream_message, arguments_and_kinds_of_calls)
{
    static const struct form forms[] = {
        {CALLS("{'index':0,'id':'a','function':{'name':'f','arguments':{'x':[1.50]}}}"),
         " [0 a f {'x':[1.50]}"},
        {CALLS("{'index':0,'id':'a','function':{'name':'f','arguments':{}}}") "|" CALLS(
             "{'index':0," ARGUMENTS("{")),
         "choices[0].delta.tool_calls[0].function.arguments go on after their end"},
        {CALLS("{'index':0,'id':'a','function':{'name':'f','arguments':null}}"), " [0 a f "},
        {CALLS("{'index':0,'id':'a','function':{'name':'f','arguments':[1]}}"),
         "choices[0].delta.tool_calls[0].function.arguments must be a string or an "
         "object"},
        {CALLS("{'index':0,'id':'a','type':'custom','custom':{'name':'p','input':'a\\n'"
               "}}") "|" CALLS("{'index':0,'custom':{'input':'\\'b'}}"),
         " [0 a p {'input':'a\\n|+\\'b+'}"},
        {CALLS("{'index':0,'id':'a','type':'custom','custom':{'name':'p'}}"),
         " [0 a p +{'input':''}"},
        {CALLS("{'index':0,'id':'a','type':'custom','custom':{'name':'p','input':{}}}"),
         "choices[0].delta.tool_calls[0].custom.input must be a string"},
        {CALLS("{'index':0,'id':'a','type':'web_search'}"),
         "choices[0].delta.tool_calls[0].type is 'web_search', not function or custom"},
        {DELTA("'function_call':{'name':'f','arguments':'{'}") "|" DELTA(
             "'function_call':{'arguments':'}'}"),
         " [0  f {|+}"},
        {DELTA("'function_call':{'name':'f'},'tool_calls':[{'id':'a'," F("f", "{}") "]"),
         "choices[0].delta.function_call stands next to tool_calls"},
    };
    static const struct form whole[] = {
        {MESSAGE("'function_call':{'name':'f','arguments':'{}'},'tool_calls':null"), " [0  f {}"},
        {MESSAGE("'tool_calls':[{'id':'a','type':'custom','custom':{'name':'p','input':'\\\\'}}]"),
         " [0 a p {'input':'\\\\+'}"},
    };

    EXPECT_ALL(true, forms);
    EXPECT_ALL(false, whole);
}

TEST(upstream_message, content_in_parts_and_thoughts)
{
    static const struct form whole[] = {
        {MESSAGE("'content':[{'type':'thinking','thinking':[{'type':'text','text':'R'}]},{'type':'"
                 "text','text':'T'}]"),
         "<R>T"},
        {MESSAGE("'content':[{'type':'reasoning','summary':[{'type':'summary_text','text':'R'}]},{'"
                 "type':'output_text','text':'T'},{'type':'refusal','refusal':'N'}]"),
         "<R>TN"},
        {MESSAGE("'content':[{'type':'image_url','image_url':{}}]"),
         "choices[0].message.content[0].type is 'image_url', which is no text"},
        {MESSAGE("'content':['x']"), "choices[0].message.content[0] must be an object"},
        {MESSAGE("'content':{'type':'text'}"),
         "choices[0].message.content must be a string or a list of parts"},
        {MESSAGE("'content':null,'refusal':'no'"), "no"},
        {MESSAGE("'content':'T','reasoning_content':'R','reasoning':'R','reasoning_details':[{'"
                 "type':'reasoning.text','text':'R'}]"),
         "<R>T "
         "{'message':{'reasoning_details':[{'type':'reasoning.text','text':'R'}]},'calls':[]}"},
        {MESSAGE("'content':'T','thinking':'R'"), "<R>T"},
        {MESSAGE("'content':'T','reasoning':{}"), "choices[0].message.reasoning must be a string"},
        {MESSAGE("'content':'T','audio':{'id':'x'}"),
         "choices[0].message.audio cannot be read: answers are text"},
        {MESSAGE("'content':'T','audio':null,'images':[]"), "T"},
        {MESSAGE("'content':'T','images':[{}]"),
         "choices[0].message.images cannot be read: answers are text"},
        {"{'message':null}", "it has no message (choices[0].message)"},
        {"{'message':7}", "choices[0].message must be an object"},
    };
    static const struct form forms[] = {
        {DELTA("'content':[{'type':'thinking','thinking':[{'type':'text','text':'R'}]}]") "|" DELTA(
             "'content':[{'type':'text','text':'T'}]") "|" DELTA("'content':'U'"),
         "<R>|T|U"},
        {MESSAGE("'content':'A'") "|" MESSAGE("'content':'B'"), "A|B"},
        {MESSAGE("'content':'A'") "|" MESSAGE("'content':'AB'"),
         "choices[0].message.content is neither what came before it nor what follows that"},
        /* A message repeats its deltas (Perplexity). */
        {"{'delta':{'content':'A'},'message':{'content':'A'}}|{'delta':{'content':'B'},'message':{'"
         "content':'AB'}}|{'delta':{},'message':{'content':'AB'}}",
         "A|B|"},
        {"{'delta':{'content':'A'}}|{'delta':{},'message':{'content':'XY'}}",
         "choices[0].message.content is neither what came before it nor what follows that"},
        {"{'delta':{},'message':{'content':'A'}}|{'delta':null}|{}", "A||"},
        {"{'delta':'x'}", "choices[0].delta must be an object"},
    };

    EXPECT_ALL(false, whole);
    EXPECT_ALL(true, forms);
}

static const struct form signed_forms[] = {
    {DELTA("'reasoning':'a','reasoning_details':[{'type':'reasoning.text','"
           "text':'a','index':0,'signature':null}]") "|" DELTA("'reasoning':'b','reasoning_"
                                                               "details':[{'type':'reasoning."
                                                               "text','text':"
                                                               "'b','index':0}]") "|" DELTA("'rea"
                                                                                            "soni"
                                                                                            "ng_"
                                                                                            "deta"
                                                                                            "ils'"
                                                                                            ":[{'"
                                                                                            "type"
                                                                                            "':'"
                                                                                            "reas"
                                                                                            "onin"
                                                                                            "g."
                                                                                            "text"
                                                                                            "','"
                                                                                            "inde"
                                                                                            "x':"
                                                                                            "0,'"
                                                                                            "sign"
                                                                                            "atur"
                                                                                            "e':'"
                                                                                            "S'},"
                                                                                            "{'"
                                                                                            "type"
                                                                                            "'"
                                                                                            ":'"
                                                                                            "reas"
                                                                                            "onin"
                                                                                            "g."
                                                                                            "encr"
                                                                                            "ypte"
                                                                                            "d','"
                                                                                            "data"
                                                                                            "':'"
                                                                                            "D','"
                                                                                            "inde"
                                                                                            "x':"
                                                                                            "1}"
                                                                                            "]"),
     "<a>|<b>| "
     "{'message':{'reasoning_details':[{'type':'reasoning.text','index':0,'"
     "signature':'S','text':'ab'},{'type':'reasoning.encrypted','data':'D','"
     "index':1}]},'calls':[]}"},
    {DELTA("'thinking_blocks':[{'type':'thinking','thinking':'a','signature':''"
           "}]") "|" DELTA("'thinking_blocks':[{'type':'thinking','thinking':''"
                           ",'signature':'S'}]") "|" DELTA("'thinking_blocks':[{'type':'"
                                                           "thinking','thinking':'b'},{'type':'"
                                                           "redacted_thinking','data':'D'}]"),
     "<a>||<b> "
     "{'message':{'thinking_blocks':[{'type':'thinking','signature':'S','"
     "thinking':'a'},{'type':'thinking','thinking':'b'},{'type':'redacted_"
     "thinking','data':'D'}]},'calls':[]}"},
    {CALLS("{'index':0,'id':'a','extra_content':{'google':{'thought_signature':"
           "'S'}}," F("f",
                      "{}")) "|" CALLS("{'index':0,'extra_content':{'"
                                       "google':{'x':1}}}") "|" DELTA("'extra_content':{'google':"
                                                                      "{'thought_signature':'M'}}"
                                                                      ",'reasoning_"
                                                                      "opaque':'O'"),
     " [0 a f {}|| "
     "{'message':{'extra_content':{'google':{'thought_signature':'M'}},'"
     "reasoning_opaque':'O'},'calls':[{'extra_content':{'google':{'thought_"
     "signature':'S','x':1}}}]}"},
    {DELTA("'content':'T','provider_specific_fields':{'refusal':null}"), "T"},
    {DELTA("'content':'T','thinking_blocks':[{'type':'thinking','thinking':'R'}"
           "]"),
     "<R>T"},
    {DELTA("'reasoning_details':'x'"), "choices[0].delta.reasoning_details must be a list"},
};

TEST(upstream_message, what_is_signed_is_put_together)
{
    EXPECT_ALL(true, signed_forms);
}

TEST(upstream_message, signed_members_of_whole_answers_stay_where_they_are)
{
    static const struct form whole[] = {
        {MESSAGE("'content':[{'type':'thinking','thinking':'R','signature':'S'},{'type':'text','"
                 "text':'T'}]"),
         "<R>T "
         "{'message':{'content_parts':[{'type':'thinking','signature':'S','thinking':'R'},{'type':'"
         "text','text':'T'}]},'calls':[]}"},
        {MESSAGE("'content':'','tool_calls':[{'id':'a'," F(
             "f",
             "{}") ",{'id':'b','extra_content':{'google':{'thought_signature':'S'}}," F("g",
                                                                                        "{}") "]"),
         " [0 a f {} [1 b g {} "
         "{'message':{},'calls':[null,{'extra_content':{'google':{'thought_signature':'S'}}}]}"},
    };

    EXPECT_ALL(false, whole);
}

TEST(upstream_message, halves_of_characters_meet_or_are_replaced)
{
    static const struct form forms[] = {
        {DELTA("'content':'a\\ud83d'") "|" DELTA("'content':'\\ude00b','reasoning':'\\udc00'"),
         "a|<\xef\xbf\xbd>\xf0\x9f\x98\x80"
         "b"},
        {CALLS("{'index':0,'id':'\\ud800'," F("f", "{\\'\\ud83d")) "|" CALLS(
             "{'index':0," ARGUMENTS("\\ude00\\'}")) "|" DELTA("'content':'\\ud83d'"),
         " [0 \xef\xbf\xbd f {'|+\xf0\x9f\x98\x80'}|\xef\xbf\xbd"},
        {DELTA("'reasoning_details':[{'type':'reasoning.text','text':'\\ud83d'}]") "|" DELTA(
             "'reasoning_details':[{'type':'reasoning.text','text':'\\ude00','\\ud800':'\\udfff'}"
             "]"),
         "|<\xf0\x9f\x98\x80> "
         "{'message':{'reasoning_details':[{'type':'reasoning.text','\xef\xbf\xbd':'\xef\xbf\xbd','"
         "text':'\xf0\x9f\x98\x80'}]},'calls':[]}"},
    };

    EXPECT_ALL(true, forms);
}
