/*
 * A completion with several prompts: each is a call of its own, with its own commit, hash and
 * replay; their answers are one HTTP answer, the choices of prompt k at index k * n.
 */
#ifndef RG_API_BATCH_H
#define RG_API_BATCH_H

#include "worker/api/call.h"

/* Takes the prepared call, which becomes the front: exchange, writer, output. */
void batch_begin(struct call *front);

#endif
