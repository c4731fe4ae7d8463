/*
 * The template is Jinja text and is probed like any other. So tests of the gateway without a model
 * folder use the same code as with one. Contents may be texts or lists of parts. Arguments of calls
 * that are text are written unchanged, objects as JSON.
 */
#include "worker/text/model/builtin_model.h"

static const char source[] =
    "{%- macro text(content) %}\n"
    "    {%- if content is string %}{{- content }}\n"
    "    {%- elif content %}{%- for part in content %}{{- part.text }}{%- endfor %}\n"
    "    {%- endif %}\n"
    "{%- endmacro %}\n"
    "{%- if tools %}\n"
    "    {{- '<|im_start|>system\\n# Tools\\n\\nCall a function by writing\\n<tool_call>\\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\\n</tool_call>\\n\\n<tools>' "
    "}}\n"
    "    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}\n"
    "    {{- '\\n</tools><|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + text(message.content) }}\n"
    "    {%- for call in message.tool_calls or [] %}\n"
    "        {{- '\\n<tool_call>\\n{\"name\": ' + call.function.name | tojson"
    " + ', \"arguments\": ' }}\n"
    "        {%- if call.function.arguments is string %}{{- call.function.arguments }}\n"
    "        {%- else %}{{- call.function.arguments | tojson }}\n"
    "        {%- endif %}\n"
    "        {{- '}\\n</tool_call>' }}\n"
    "    {%- endfor %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

struct str builtin_template(void)
{
    return str_of(source, sizeof(source) - 1);
}
