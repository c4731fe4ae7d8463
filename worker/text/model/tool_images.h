/*
 * Places pictures of tools' results in a prompt (--tool-images): in the tool's message, or, since
 * many templates drop them there, in a user's message after the results. Stored chats and their
 * hashes do not depend on it: pictures move only while a prompt is rendered, and keep their order.
 */
#ifndef RG_MODEL_TOOL_IMAGES_H
#define RG_MODEL_TOOL_IMAGES_H

#include "worker/text/model/model_internal.h"

/* Renders both forms, and sets the one that `told` names ("inline", "user"; "auto" or NULL: the
 * first that the template shows). Sets m->info.tool_images and the notes for people. Call it after
 * pictures_probe. ERR_CONFIG if the template does not show the named form. */
int tool_images_choose(struct model *m, struct model_scratch *s, const char *told, struct err *e);

/* The messages to be rendered: the *n given ones, or a list in the arena (then *n is its length).
 * Borrows from the messages. */
const struct json *tool_images_move(const struct model *m, struct arena *a,
                                    const struct json *messages, uint32_t *n);

#endif
