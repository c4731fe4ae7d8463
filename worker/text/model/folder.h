/*
 * A Hugging Face model folder, read: the JSON files (each optional but tokenizer.json, which the
 * tokenizer loads itself) and the chat templates, with the precedence of transformers: files
 * before tokenizer_config.json, chat_template.jinja and chat_templates/NAME.jinja.
 */
#ifndef RG_MODEL_FOLDER_H
#define RG_MODEL_FOLDER_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/json.h"

struct folder {
    const struct json *tokenizer_config; /* NULL: no such file */
    const struct json *special_tokens_map;
    const struct json *generation_config;
    const struct json *config;
    const struct json *preprocessor;
    struct str template_default; /* absent: none found */
    struct str template_tools;   /* the one named tool_use; absent: none */
    struct str template_from;    /* file of the default template */
};

/* Reads dir into the arena. `template_path` (NULL: none) replaces the folder's templates.
 * ERR_IO, ERR_CONFIG with the file's name. */
int folder_read(struct arena *a, const char *dir, const char *template_path, struct folder *ret,
                struct err *e);

#endif
