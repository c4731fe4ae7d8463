/*
 * struct call_rules: the limits of every model call of the worker, and the formats of the model's
 * answers. Made from the settings, and updated in place when the settings are reloaded. A helper
 * must therefore get a copy that was made on the loop.
 */
#ifndef RG_CALL_CALL_RULES_H
#define RG_CALL_CALL_RULES_H

#include "worker/text/parsers/kinds.h"
#include "worker/text/request/request_limits.h"

struct call_rules {
    struct request_limits limits;
    struct image_rules images;
    /* formats of the model; the state of the thought is set for each prompt */
    struct answer_formats formats;
};

#endif
