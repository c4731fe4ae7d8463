/*
 * Makes a checkpoint without links from one answer of a commit record (apply.c).
 */
#ifndef RG_SESSION_TAKE_ANSWER_H
#define RG_SESSION_TAKE_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct checkpoint;
struct commit_answer;
struct err;
struct forest;
struct payload;
struct session;

/* Sets the answer's fields, except its message and replay text; flags are its record's. Texts are
 * copied into the forest's arena. *t must be zeroed. Returns -1 with e if the answer is not valid.
 */
int take_answer(struct checkpoint *t, const struct commit_answer *a, unsigned flags,
                struct forest *f, struct err *e);

/* Sets the message of answer i of the call, in the forest's arena, and its node, without links, if
 * that was prepared. Returns -1 if the text is missing or not JSON. */
int take_message(struct checkpoint *t, struct session *s, uint64_t call, uint32_t i,
                 struct str text, struct err *e);

/* Sets where the answer's bulk is in the payload: from byte `at` on. Returns where the next
 * answer's begins. */
size_t take_bulk(struct checkpoint *t, struct payload *payload, size_t at);

/* Returns the largest of n ids and `top`. */
uint32_t take_top(uint32_t top, const int32_t *ids, size_t n);

#endif
