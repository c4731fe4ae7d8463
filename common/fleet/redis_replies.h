/*
 * Replies of the scripts of a Redis store, as answers (fleet_store.h). Pure. Texts stay in the
 * reply, lists are in the arena.
 */
#ifndef RG_FLEET_REDIS_REPLIES_H
#define RG_FLEET_REDIS_REPLIES_H

#include <stdbool.h>

#include "common/fleet/fleet_store.h"

struct arena;
struct resp;

/* Reads the verdict, which begins each reply of a script. False: there is none. */
bool redis_read_verdict(const struct resp *reply, struct store_answer *a);

/* Fills `a` from a reply. False: the reply has another form. */
typedef bool (*redis_reader)(struct arena *arena, const struct resp *r, struct store_answer *a);

bool redis_read_claim(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_refusals(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_renewal(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_base(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_texts(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_lengths(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_log(struct arena *arena, const struct resp *r, struct store_answer *a);
bool redis_read_edition(struct arena *arena, const struct resp *r, struct store_answer *a);

/* Reads one entry of a list: its name, and its hash. */
void redis_read_entry(struct arena *arena, const struct resp *item, struct store_entry *ret);

enum { REDIS_WHY_MAX = 512 };

/* Reads an error. Returns whether the connection must be closed: this server does not serve. */
bool redis_read_error(struct arena *arena, const struct resp *reply, struct store_answer *a);

#endif
