/*
 * struct id_rules: which token ids an answer may have according to the request: those of
 * allowed_token_ids without those that logit_bias forbids. Holds one bit for each id. Pure.
 */
#ifndef RG_CALL_ID_RULES_H
#define RG_CALL_ID_RULES_H

#include <stddef.h>
#include <stdint.h>

#include "worker/text/tokens/span.h"

struct arena;
struct id_rules;
struct sampling;

/* Makes the rules of ids below vocab_size in the arena. Returns NULL if all ids are allowed. */
const struct id_rules *id_rules_new(struct arena *a, const struct sampling *s, uint32_t vocab_size);

/* Returns the name of the parameter that forbids one of the ids, and that id's index. Returns NULL
 * if all ids are allowed. */
const char *id_rules_broken(const struct id_rules *r, struct token_span ids, size_t *ret_at);

#endif
