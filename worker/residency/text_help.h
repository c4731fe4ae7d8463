/*
 * struct text_help: a helper makes the long new messages of a record ready (session_texts.h) before
 * it is applied to a session that is read back, or that is made as a copy of another one. The loop
 * then does little when the record is applied, and others have their turns meanwhile. Embedded in
 * its owner, zeroed, with `done` set.
 */
#ifndef RG_RESIDENCY_TEXT_HELP_H
#define RG_RESIDENCY_TEXT_HELP_H

#include <stdbool.h>

#include "common/base/str.h"

struct err;
struct residency;
struct session;
struct text_job;

struct text_help {
    /* On the loop: the record can be applied, with session_texts_end behind it. Texts that a helper
     * was not given the time for are read with it, on the loop. e: a helper is stuck in them, and
     * the session will never have them. */
    void (*done)(struct text_help *h, const struct err *e);
    struct text_job *job; /* own, while a helper has the texts; NULL: nothing is waited for */
};

/* Whether a helper makes the record's texts ready: then `done` follows, and until then no record is
 * applied to the session, which the owner has pinned. False: they are short, it is no commit, or
 * there are no helpers. The record is borrowed for the call only. */
bool text_help_begin(struct text_help *h, struct residency *r, struct session *s,
                     struct str record);

/* `done` is not called any more, and no record will be applied: what the helper has is freed when
 * it lets go. Fine when nothing is waited for. */
void text_help_leave(struct text_help *h);

/* The helpers have ended, all but lost ones: what these may still use is not freed. Nobody is told;
 * their `job` is NULL. */
void text_helps_end(struct residency *r, bool lost);

#endif
