/*
 * struct new_env: the environment that a request with long tools or template arguments brings,
 * made ready before its call is recorded, maybe in a helper: its texts as the commit record has
 * them (commit.h), and the forest's copies, which are read from those texts, as a replay of the
 * record does. Of a long record that is read back the same copies are made from its texts.
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
    atomic_size_t *sum; /* where the memory of all this is counted, as arena.sum; or NULL */
};

/* Makes it. Touches nothing else. NULL if a value cannot be read back from its text, which its
 * commit will say. The caller frees it. */
struct new_env *new_env_make(const struct env_key *key, atomic_size_t *sum);

/* Makes the environment of the two texts of a commit record that is read back, hashed as well:
 * `texts` stays empty. NULL if a value cannot be read, or the thread's job is cancelled: then the
 * record is read when it is applied. */
struct new_env *new_env_read(struct str texts, atomic_size_t *sum);

/* Frees it; accepts NULL. */
void new_env_free(struct new_env *v);

#endif
