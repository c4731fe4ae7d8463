/*
 * struct call_rules: the limits of every model call of the worker, and the formats of the model's
 * answers. Made from the settings, and again in place when they are reloaded. A helper's reader
 * copies it on the loop first.
 */
#ifndef RG_CALL_CALL_RULES_H
#define RG_CALL_CALL_RULES_H

#include "worker/text/parsers/kinds.h"
#include "worker/text/request/request_limits.h"

struct call_rules {
    struct request_limits limits;
    struct image_rules images;
    struct answer_formats formats; /* formats of the model; the thought is each prompt's */
};

#endif
