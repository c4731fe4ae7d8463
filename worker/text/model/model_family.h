/*
 * Model families: facts that probing a template cannot find. Everything else about a turn's
 * boundaries is derived from the template itself, so an unknown model needs no entry here.
 */
#ifndef RG_MODEL_MODEL_FAMILY_H
#define RG_MODEL_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

struct template;

struct model_family {
    const char *name;
    const char *marks[3];   /* texts that must all be in the template's source; NULL-terminated */
    const char *without[2]; /* texts that must not be in it */
    const char *pin;        /* template variable that keeps the template append-only, or NULL */
    bool pin_value;
    const char *tool_parser;      /* NULL: chosen by the template's marks */
    const char *reasoning_parser; /* NULL: chosen by the template's marks */
    bool system_first;            /* the model was trained with system messages at the front only */
};

/* Returns the family whose marks are in the template. Never NULL ("default" matches all). */
const struct model_family *family_detect(const struct template *t);

/* Returns the i-th of all families; NULL after the last. */
const struct model_family *model_family_at(size_t i);

/* Finds a family by name, without regard to case, '-', '_' and '.'. Returns NULL if it is
 * unknown. */
const struct model_family *family_named(const char *name);

/* Returns all names, for an error's text: "qwen3, qwen3.5, ...". */
const char *family_names(void);

#endif
