/*
 * struct session_remains: what the content of a session held, once the session needs it no more: it
 * ended, or was evicted. Of megabytes that takes longer to free than the worker's loop may be held,
 * so whoever knows helpers takes it (session_store_buries) and frees it there. Nobody else has a
 * pointer into it.
 */
#ifndef RG_SESSION_REMAINS_H
#define RG_SESSION_REMAINS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct session_remains;
struct session;
struct session_store;

/* From this many bytes on remains are for whoever takes them; the loop frees less, half a
 * millisecond at most. Debug builds leave more of it to helpers, so that all tests see it. */
#ifdef NDEBUG
enum { REMAINS_LEAST = 1 << 20 };
#else
enum { REMAINS_LEAST = 32 << 10 };
#endif

/* Takes them: remains_free frees all of it, on any thread. What they hold is in no sum any
 * more: whoever waits for room would be refused what is free in a moment. */
typedef void (*remains_fn)(void *ctx, struct session_remains *r);
void session_store_buries(struct session_store *st, remains_fn take, void *ctx);

void remains_free(struct session_remains *r);

/* Of s goes what it holds of messages, answers and tokens; its forest is unusable then. */
void session_free_content(struct session *s);

#endif
