/*
 * The pictures of a call. Those of the request are stored in the media store before anything of the
 * call is on record. The engine gets the bytes of all pictures in the conversation, from the store.
 * Both may run in a helper.
 */
#ifndef RG_CALL_CALL_IMAGES_H
#define RG_CALL_CALL_IMAGES_H

struct engine_request;
struct err;
struct model_call;

/* Stores the request's pictures, and frees their memory. Errors such as ERR_STORAGE_FULL mean that
 * nothing was sent. */
int call_images_keep(struct model_call *t, struct err *e);

/* Fills t->images, in the call's arena, in the order of the prompt's placeholders. */
int call_images_gather(struct model_call *t, struct err *e);

/* Returns the ids that its answers must not have, because they are placeholders of pictures. Valid
 * from RENDER on. */
struct token_span call_images_banned(const struct model_call *t);

/* Writes the pictures into an engine's request. */
void call_images_put(const struct model_call *t, struct engine_request *er);

#endif
