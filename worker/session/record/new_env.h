/*
 * struct new_env: the environment of a request with long tools or template arguments, prepared
 * before its call is recorded, perhaps in a helper: its texts in the form of the commit record
 * (commit.h), and the forest's copies, which are read from those texts as in a replay of the
 * record. When a long record is read back, the same copies are made from its texts.
 */
#ifndef RG_SESSION_NEW_ENV_H
#define RG_SESSION_NEW_ENV_H

#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "worker/session/forest/forest.h"

struct new_env {
    struct buf texts;   /* tools and arguments, as record_put_json writes them */
    struct arena copy;  /* memory that the forest takes over (forest_env_add) */
    struct env_key key; /* key of the copies; its pool is the request's */
    atomic_size_t *sum; /* sum to which this memory is added, as arena.sum; or NULL */
};

/* Makes the environment. Uses nothing else. Returns NULL if a value cannot be read back from its
 * text; the commit then reports this. The caller frees the result. */
struct new_env *new_env_make(const struct env_key *key, atomic_size_t *sum);

/* Makes the environment from the two texts of a commit record that is read back, hashed as well;
 * `texts` stays empty. Returns NULL if a value cannot be read, or if the thread's job is cancelled:
 * the values are then read when the record is applied. */
struct new_env *new_env_read(struct str texts, atomic_size_t *sum);

/* Accepts NULL. */
void new_env_free(struct new_env *v);

#endif
