/*
 * An answer that the session has already at the same position: the client sent its request twice
 * (idempotent_retry).
 */
#ifndef RG_SESSION_SAME_ANSWER_H
#define RG_SESSION_SAME_ANSWER_H

#include "worker/session/record/commit.h"

struct checkpoint;
struct session;

/* Links an answer t that equals an earlier one. DUPLICATE_REPLACE: t replaces the earlier one and
 * takes its reward. Otherwise the earlier one stays, because others continue it, and becomes the
 * newest. The hidden one points to the other, because rewards may arrive under both ids. The one
 * that stays has the speaker of the first call, or main. */
void same_answer_link(struct session *s, struct checkpoint *t, struct checkpoint *duplicate,
                      enum commit_duplicate mode);

#endif
