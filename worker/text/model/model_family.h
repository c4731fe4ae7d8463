/*
 * Model families: what probing a template cannot know. Everything else about a turn's boundaries
 * is derived from the template itself, so an unknown model needs no entry here.
 */
#ifndef RG_MODEL_MODEL_FAMILY_H
#define RG_MODEL_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

struct template;

struct model_family {
    const char *name;
    const char *marks[3];   /* all must be in the template's source; NULL ends */
    const char *without[2]; /* none of these may */
    const char *pin;        /* template variable that keeps the template append-only, or NULL */
    bool pin_value;
    const char *tool_parser;      /* NULL: chosen by the template's markers */
    const char *reasoning_parser; /* NULL: chosen by the template's marks */
    bool system_first;            /* trained with system messages in front only */
};

/* The family whose marks the template bears; never NULL ("default" matches all). */
const struct model_family *family_detect(const struct template *t);

/* Returns the i-th of all families; NULL after the last. */
const struct model_family *model_family_at(size_t i);

/* Finds a family by name (case, '-', '_' and '.' aside); NULL if unknown. */
const struct model_family *family_named(const char *name);

/* All names, for an error's text: "qwen3, qwen3.5, ...". */
const char *family_names(void);

#endif
