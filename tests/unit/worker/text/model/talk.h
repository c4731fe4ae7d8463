/*
 * Random conversations and small byte-level model folders for the tests of worker/text/model.
 */
#ifndef RG_TEST_MODEL_TALK_H
#define RG_TEST_MODEL_TALK_H

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "worker/text/model/model.h"

struct talk_random {
    uint64_t state;
};

uint32_t talk_below(struct talk_random *r, uint32_t n);

/* What a conversation may hold. */
struct talk_options {
    bool tools, thoughts, late_system;
    bool call_thoughts_only; /* every answer carries a thought */
};

/* A conversation: user, answers, calls and results; ends with no assistant message. *covered: how
 * many messages a checkpoint may hold (the last of them an assistant's); 0: none. */
const struct json *talk_make(struct talk_random *r, struct arena *a, const struct talk_options *o,
                             size_t *covered);

/* A tools list with one function. */
const struct json *talk_tools(struct arena *a);

/* Writes a model folder with the template's text and a byte-level tokenizer that knows the
 * template's special tokens; special: tokenizer_config.json. The path is in the arena; talk_remove
 * deletes it. */
const char *talk_folder(struct arena *a, struct str template_text, const struct json *special);
void talk_remove(const char *dir);

#endif
