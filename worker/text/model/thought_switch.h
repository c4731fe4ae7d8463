/*
 * The thought settings of a model's chat template: the variable that switches thoughts, and
 * efforts. Found in the template's source, since templates do not declare them. Used when a request
 * wants to change them.
 */
#ifndef RG_MODEL_THOUGHT_SWITCH_H
#define RG_MODEL_THOUGHT_SWITCH_H

#include <stdbool.h>

struct model;

/* The variable that is true or false, of the template for chats with tools or without; NULL: the
 * template has none. */
const char *model_thinking_switch(const struct model *m, bool tools);

/* Whether the template reads reasoning_effort. */
bool model_knows_effort(const struct model *m, bool tools);

#endif
