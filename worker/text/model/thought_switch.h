/*
 * The thought settings of a model's chat template: the variable that switches thoughts, and
 * efforts. They are found in the template's source, because templates do not declare them. Used
 * when a request wants to change them.
 */
#ifndef RG_MODEL_THOUGHT_SWITCH_H
#define RG_MODEL_THOUGHT_SWITCH_H

#include <stdbool.h>

struct model;

/* Returns the boolean variable that switches thoughts, in the template for chats with or without
 * tools; NULL: the template has none. */
const char *model_thinking_switch(const struct model *m, bool tools);

/* Reports whether the template reads reasoning_effort. */
bool model_knows_effort(const struct model *m, bool tools);

#endif
