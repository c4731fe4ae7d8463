/*
 * Reads the template's source, because a template cannot be asked for its variables.
 * enable_thinking is an unambiguous name. In some templates "thinking" is also a member of a
 * message, so it counts only in the forms that conditions have.
 */
#include "worker/text/model/thought_switch.h"

#include "worker/text/model/model_internal.h"
#include "worker/text/template/template.h"

/* Reports whether "thinking" is used as a variable. Messages may call a thought so, too. */
static bool is_variable(const struct template *t)
{
    static const char *const uses[] = {" thinking is defined", " not thinking ", "(thinking ",
                                       " if thinking ",        " if thinking%",  " if thinking-"};
    struct str source = template_source(t);

    for (size_t i = 0; i < ARRAY_LEN(uses); i++) {
        if (str_find(source, str_cstr(uses[i]), 0) != SIZE_MAX)
            return true;
    }
    return false;
}

const char *model_thinking_switch(const struct model *m, bool tools)
{
    const struct template *t = model_template(m, tools);

    if (template_mentions(t, "enable_thinking"))
        return "enable_thinking";
    return is_variable(t) ? "thinking" : NULL;
}

bool model_reads_variable(const struct model *m, bool tools, const char *name)
{
    return !model_sets_variable(str_cstr(name)) &&
           template_mentions(model_template(m, tools), name);
}
