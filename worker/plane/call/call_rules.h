/*
 * struct call_rules: what every model call of the worker is held to, and the formats that the
 * model's answers come in. Made from the settings, and made anew in place when they are reloaded:
 * who reads it in a helper takes a copy on the loop.
 */
#ifndef RG_CALL_CALL_RULES_H
#define RG_CALL_CALL_RULES_H

#include "worker/text/parsers/kinds.h"
#include "worker/text/request/request_limits.h"

struct call_rules {
    struct request_limits limits;
    struct image_rules images;
    struct answer_formats formats; /* of the model; the thought is each prompt's */
};

#endif
