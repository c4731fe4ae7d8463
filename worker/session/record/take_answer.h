/*
 * One answer of a commit record -> a checkpoint without links (apply.c).
 */
#ifndef RG_SESSION_TAKE_ANSWER_H
#define RG_SESSION_TAKE_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct checkpoint;
struct commit_answer;
struct err;
struct payload;
struct session;

/* Fills in the answer's fields, without its message and replay text; flags are its record's. Texts
 * are copied into the arena. *t is zeroed before. Returns -1 and e if it is not valid. */
int take_answer(struct checkpoint *t, const struct commit_answer *a, unsigned flags,
                struct arena *own, struct err *e);

/* The message of answer i of the call, in the forest's arena, and a node for it without a place if
 * it was made ready. -1: the text is missing, or not JSON. */
int take_message(struct checkpoint *t, struct session *s, uint64_t call, uint32_t i,
                 struct str text, struct err *e);

/* Its bulk lies in the payload from byte `at` on. Returns where the next one's does. */
size_t take_bulk(struct checkpoint *t, struct payload *payload, size_t at);

/* The largest of n ids and `top`. */
uint32_t take_top(uint32_t top, const int32_t *ids, size_t n);

#endif
