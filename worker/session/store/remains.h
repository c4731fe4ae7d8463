/*
 * struct session_remains: the memory of a session's content, after the session ended or was
 * evicted. Because freeing megabytes takes longer than the worker's loop may be held, the owner of
 * the helpers takes it (session_store_buries) and frees it there. Its messages are freed with the
 * last hold on them (session_hold_messages): if that one ends later, the owner gets them again.
 */
#ifndef RG_SESSION_REMAINS_H
#define RG_SESSION_REMAINS_H

#include "common/base/str.h"

struct session_remains;
struct session;
struct session_store;

/* From this many bytes on, remains are passed on; the loop frees smaller ones, in half a
 * millisecond at most. Debug builds leave more of it to helpers, so that all tests cover this. */
#ifdef NDEBUG
enum { REMAINS_LEAST = 1 << 20 };
#else
enum { REMAINS_LEAST = 32 << 10 };
#endif

/* Takes ownership of r: remains_free frees it, on any thread. May be called on any thread. Its
 * bytes count in no sum, because otherwise a caller would be refused memory that is free a moment
 * later. */
typedef void (*remains_fn)(void *ctx, struct session_remains *r);
void session_store_buries(struct session_store *st, remains_fn take, void *ctx);

void remains_free(struct session_remains *r);

/* Frees the messages, answers and tokens of s. Its forest is unusable then. */
void session_free_content(struct session *s);

#endif
