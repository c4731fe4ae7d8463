/*
 * The pictures of a call: what came with the request goes into the media store before anything of
 * the call is on record, and the engine gets the bytes of all that the conversation shows, from the
 * store. Both may run in a helper.
 */
#ifndef RG_CALL_CALL_IMAGES_H
#define RG_CALL_CALL_IMAGES_H

struct engine_request;
struct err;
struct model_call;

/* Stores what the request brought, and gives its memory back. ERR_STORAGE_FULL and its like:
 * nothing was sent. */
int call_images_keep(struct model_call *t, struct err *e);

/* Fills t->images, in the call's arena, in the order of the prompt's placeholders. */
int call_images_gather(struct model_call *t, struct err *e);

/* The ids that its answers must not have, since they stand for pictures. From RENDER on. */
struct token_span call_images_banned(const struct model_call *t);

/* Writes the pictures into an engine's request. */
void call_images_put(const struct model_call *t, struct engine_request *er);

#endif
