/*
 * The chat template of the built-in model: ChatML turns, Hermes tool calls.
 */
#ifndef RG_MODEL_BUILTIN_MODEL_H
#define RG_MODEL_BUILTIN_MODEL_H

#include "common/base/str.h"

struct str builtin_template(void);

#endif
