/*
 * The parsed files of a Hugging Face model folder: the JSON files (each optional except
 * tokenizer.json, which the tokenizer loads itself) and the chat templates. As in transformers,
 * files override tokenizer_config.json: chat_template.jinja and
 * additional_chat_templates/NAME.jinja.
 */
#ifndef RG_MODEL_FOLDER_H
#define RG_MODEL_FOLDER_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/json.h"

struct folder {
    const struct json *tokenizer_config; /* NULL: the file does not exist */
    const struct json *special_tokens_map;
    const struct json *generation_config;
    const struct json *config;
    const struct json *preprocessor;
    struct str template_default; /* absent: no template was found */
    struct str template_tools;   /* template named tool_use; absent: there is none */
    struct str template_from;    /* path of the default template */
    struct str template_json;    /* the default one that a JSON file has, perhaps replaced */
};

/* Reports whether the path is a link. Downloaded folders link to a folder that may be missing. */
bool folder_is_link(const char *path);

/* Reads dir into the arena. `template_path` (NULL: none) replaces the folder's templates. Returns
 * -1 with ERR_IO or ERR_CONFIG and the file's name. */
int folder_read(struct arena *a, const char *dir, const char *template_path, struct folder *ret,
                struct err *e);

#endif
