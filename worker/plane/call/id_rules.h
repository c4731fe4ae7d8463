/*
 * struct id_rules: which ids an answer may have, by the request: allowed_token_ids, and the ids
 * that logit_bias forbids. A bit for each id. Pure.
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

/* Returns the name of the parameter that forbids one of the ids, with that id's index, or NULL. */
const char *id_rules_broken(const struct id_rules *r, struct token_span ids, size_t *ret_at);

#endif
