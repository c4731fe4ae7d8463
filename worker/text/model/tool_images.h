/*
 * Places the pictures of tools' results in a prompt (--tool-images): in the tool's message, or in a
 * user's message after the results, because many templates drop them in a tool's message. Stored
 * chats and their hashes do not depend on the choice: pictures move only while a prompt is
 * rendered, and keep their order.
 */
#ifndef RG_MODEL_TOOL_IMAGES_H
#define RG_MODEL_TOOL_IMAGES_H

#include "worker/text/model/model_internal.h"

/* Renders both forms, and chooses the one that `told` names ("inline", "user"; "auto" or NULL: the
 * first that the template shows). Sets m->info.tool_images and the notes for people. Call it after
 * pictures_probe. Returns -1 with ERR_CONFIG if the template does not show the named form. */
int tool_images_choose(struct model *m, struct model_scratch *s, const char *told, struct err *e);

/* Returns the messages to render: the *n given ones, or a new list in the arena (*n becomes its
 * length). Borrows from the messages. */
const struct json *tool_images_move(const struct model *m, struct arena *a,
                                    const struct json *messages, uint32_t *n);

#endif
