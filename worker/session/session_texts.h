/*
 * struct session_texts: the long new messages, tools and template arguments of a commit that is
 * about to be read back, or copied into a session of its own, and long messages of its answers, or
 * those of RECORD_ANSWERS, for a helper. As for a live call
 * (new_messages.h, new_env.h) the loop then neither reads their JSON nor copies them. Before each
 * record (residency/text_help.h):
 *
 *   loop: session_texts_take    the texts, out of the record or of those before it (texts_ahead.c)
 *   helper: session_texts_make  what the forest takes over
 *   loop: session_texts_give    that to the session, or the texts back; then the record is applied,
 *         session_texts_end     and what was made for it is over
 *
 * Between take and give no record is applied to the session. Its own are what it was made with:
 * the helper touches nothing of the session.
 */
#ifndef RG_SESSION_SESSION_TEXTS_H
#define RG_SESSION_SESSION_TEXTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct session;
struct session_texts;

/* Of the record that is applied next to a session that is loaded or copied; NULL: it is short, or
 * none of these. Memory is counted in `sum`, which must live as long as what the session gets. */
struct session_texts *session_texts_take(struct session *s, struct str record, atomic_size_t *sum);

/* Whether there would be any. Changes nothing. */
bool session_texts_wait(struct session *s, struct str record);

/* Of them. */
size_t session_texts_bytes(const struct session_texts *t);

/* In a helper. Does nothing when the job is cancelled, or the texts cannot be read: applying the
 * record says why. */
void session_texts_make(struct session_texts *t);

/* Frees t. */
void session_texts_give(struct session *s, struct session_texts *t);

/* The record was applied, or refused; fine when nothing was made for it. */
void session_texts_end(struct session *s);

/* Instead of giving: the session is not read any further. */
void session_texts_free(struct session_texts *t);

#endif
