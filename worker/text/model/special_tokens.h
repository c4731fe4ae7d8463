/*
 * Loads the special tokens that templates read, and the ids that end a turn. Both return -1 with
 * ERR_CONFIG, file and member for a value of another kind.
 */
#ifndef RG_MODEL_SPECIAL_TOKENS_H
#define RG_MODEL_SPECIAL_TOKENS_H

#include <stdbool.h>

struct err;
struct folder;
struct model;

/* Fills m->special: tokenizer_config.json first, then special_tokens_map.json. The tokenizer and
 * the templates are loaded. */
int special_load(struct model *m, const struct folder *f, struct err *e);

/* Collects the stop ids from all places that name some. has_folder false: the model is built in. */
int stops_load(struct model *m, const struct folder *f, bool has_folder, struct err *e);

#endif
