/*
 * Pictures of a model: its family and the numbers by which tokens are computed, whether its
 * template shows pictures, and how a text that only spells a picture's token stays text.
 *
 * A template writes a picture's placeholder itself, so the text of a message or a tool must not
 * become one. While such text is rendered it contains a guard (digits, random for each load).
 * pictures_encode removes the guard and encodes the text as ordinary text.
 */
#ifndef RG_MODEL_PICTURES_H
#define RG_MODEL_PICTURES_H

#include "worker/text/model/folder.h"
#include "worker/text/model/model_internal.h"

/* Sets m->vision from the folder. info.vision stays NULL if the family is unknown or lacks its
 * token. */
void pictures_load(struct model *m, const struct folder *f);

/* Clears info.vision if the template does not show one placeholder for each picture. */
void pictures_probe(struct model *m, struct model_scratch *s);

/* Counts the placeholders of pictures in a rendered text. */
size_t pictures_shown(const struct model *m, struct str text);

/* Returns the value, or a copy in the arena with the guard inside of every text that spells a
 * picture's token. */
struct json pictures_guard(const struct model *m, struct arena *a, const struct json *v);

/* Returns a content in the template's form: a picture's part has only its type. */
struct json pictures_bare(struct arena *a, const struct json *content);

/* Appends the ids of a rendered text. */
int pictures_encode(struct model_scratch *s, struct str text, struct token_vec *out, struct err *e);

/* Reports whether the text has a guard. Then only pictures_encode may encode it. */
bool pictures_guarded(const struct model *m, struct str text);

#endif
