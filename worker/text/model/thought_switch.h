/*
 * The variables of a model's chat template: the one that switches thoughts, and others. They are
 * found in the template's source, because templates do not declare them.
 */
#ifndef RG_MODEL_THOUGHT_SWITCH_H
#define RG_MODEL_THOUGHT_SWITCH_H

#include <stdbool.h>

struct model;

/* Returns the boolean variable that switches thoughts, in the template for chats with or without
 * tools; NULL: the template has none. */
const char *model_thinking_switch(const struct model *m, bool tools);

/* Reports whether the template may read this variable of chat_template_kwargs: its source has the
 * name, and the gateway does not set the variable itself. */
bool model_reads_variable(const struct model *m, bool tools, const char *name);

#endif
