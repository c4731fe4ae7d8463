/*
 * Pictures of a model: which family makes tokens of them and by which numbers, whether its template
 * shows them, and how a text that only spells a picture's token stays text.
 *
 * A template writes a picture's placeholder itself, so the text of a message or a tool must not
 * become one. While such text is rendered it contains a guard (digits, random for each load).
 * pictures_encode removes the guard and encodes the text as ordinary text.
 */
#ifndef RG_MODEL_PICTURES_H
#define RG_MODEL_PICTURES_H

#include "worker/text/model/folder.h"
#include "worker/text/model/model_internal.h"

/* Sets m->vision by the folder; info.vision stays NULL where a family is not known, or lacks its
 * token. */
void pictures_load(struct model *m, const struct folder *f);

/* Takes info.vision back where the template does not show one placeholder a picture. */
void pictures_probe(struct model *m, struct model_scratch *s);

/* How many placeholders of pictures a rendered text has. */
size_t pictures_shown(const struct model *m, struct str text);

/* The value, or a copy in the arena with the guard inside what spells a picture's token. */
struct json pictures_guard(const struct model *m, struct arena *a, const struct json *v);

/* A content as the template gets it: parts of pictures say nothing but that. */
struct json pictures_bare(struct arena *a, const struct json *content);

/* Appends the ids of a rendered text. */
int pictures_encode(struct model_scratch *s, struct str text, struct token_vec *out, struct err *e);

/* Whether the text has a guard: then only pictures_encode may encode it. */
bool pictures_guarded(const struct model *m, struct str text);

#endif
