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

/* Options of random conversations: what they may contain. */
struct talk_options {
    bool tools, thoughts, late_system;
    bool call_thoughts_only; /* every answer has a thought */
};

/* Makes a conversation of user messages, answers, calls and results, which does not end with an
 * assistant message. Sets *covered to the number of messages that a checkpoint may cover (the last
 * is an assistant's), or to 0. */
const struct json *talk_make(struct talk_random *r, struct arena *a, const struct talk_options *o,
                             size_t *covered);

/* Makes a tools list with one function. */
const struct json *talk_tools(struct arena *a);

/* Writes a model folder with this template and a byte-level tokenizer, which has the template's
 * special tokens. special: content of tokenizer_config.json. Returns the path, in the arena.
 * talk_remove deletes the folder. */
const char *talk_folder(struct arena *a, struct str template_text, const struct json *special);
void talk_remove(const char *dir);

#endif
