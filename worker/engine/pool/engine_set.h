/*
 * struct engine_set: the engines as arguments of --engine with their numbers, and the file with the
 * changes of /admin/engines: STATE_DIR/engines.json. The file contains the --engine settings at the
 * time of the change. If they differ at a start, the settings win. The file is replaced as a whole,
 * so a reader gets the old set or the new one.
 */
#ifndef RG_ENGINE_ENGINE_SET_H
#define RG_ENGINE_ENGINE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

/* Name of the pool of the trained model. Engines without a name belong to it. */
#define ENGINE_POOL_POLICY "policy"

/* --engine none: the gateway begins without engines, and waits for /admin/engines. */
#define ENGINE_SET_NONE "none"

struct engine_entry {
    const char *text; /* the engine's argument */
    unsigned number;  /* number of its counters in metrics and on the board */
};

/* Rule for pools. If some engine has no name, or is named `policy`, names are those of pools, and
 * engines without a name are the policy's. If all engines have other names, and no pool is known
 * from before, the names are only names, and all engines are the policy's. A known pool remains
 * one, even without engines: a request for it must not be answered by the policy. */
struct engine_set {
    struct engine_entry *at;
    size_t n, cap;

    struct {
        const char **at;
        size_t n, cap;
    } pools; /* known pools, except the policy's */

    size_t kept_pools; /* number of pools, from the first on, that the file has */

    uint64_t edition; /* number of changes by /admin/engines; 0: the set is that of the settings */
    struct arena arena;
};

/* The --engine settings of this run, and the folder of the file. */
struct engine_home {
    const char *state_dir;
    const char *const *settings;
    size_t n;
};

/* Adds an engine. The text is copied. */
void engine_set_add(struct engine_set *s, struct str text, unsigned number);

/* Makes a set of the settings alone, in their order. */
void engine_set_of(struct engine_set *s, const char *const *texts, size_t n);
void engine_set_done(struct engine_set *s);

/* Loads the set of the file, or of the settings if there is no file or it belongs to other
 * settings. In the latter case the file's pools stay known, and *told (may be NULL) is true if the
 * file had a change by /admin/engines. Returns -1 with ERR_CONFIG, and an empty set, if the file
 * cannot be read. */
int engine_set_load(struct engine_set *s, const struct engine_home *h, bool *told, struct err *e);

/* Writes the set as it was loaded if the file lacks pools that it knows. Errors are those of
 * engine_set_lock and engine_set_save. */
int engine_set_keep_pools(const struct engine_set *s, const struct engine_home *h, struct err *e);

/* Writes the file durably. On ERR_STORAGE_FAILED the file is unchanged. */
int engine_set_save(const struct engine_set *s, const struct engine_home *h, struct err *e);

/* Returns a number that changes when the file does; 0: there is none. */
uint64_t engine_set_stamp(const char *state_dir);

/* Locks the file until the descriptor is closed. Returns -1 with ERR_STATE_CONFLICT (a different
 * process changes it) or ERR_STORAGE_FAILED. */
int engine_set_lock(const char *state_dir, struct err *e);

/* Adds the pools of `now` (may be NULL) and those that the engines name to the known pools. Returns
 * -1 with ERR_CONFIG if an engine of both sets would change its pool. */
int engine_set_follow(struct engine_set *s, const struct engine_set *now, struct err *e);

bool engine_set_knows_pool(const struct engine_set *s, const char *name);

/* Returns the pool of an engine by its argument. */
const char *engine_set_pool_of(const struct engine_set *s, struct arena *a, const char *text);

/* Makes a set of the engines of one pool (NULL: the policy's), with their numbers. */
void engine_set_part(const struct engine_set *s, const char *pool, struct engine_set *ret);

/* Returns the name of an engine of the set by its argument: its own, else the pool's if it is alone
 * in the pool, else the argument without options. NULL: the argument is not valid. */
const char *engine_set_name(const struct engine_set *s, struct arena *a, const char *text);

/* Returns -1 with ERR_CONFIG if an argument is not valid, if an option has no effect in its pool,
 * or if two engines have one name. */
int engine_set_check(const struct engine_set *s, struct err *e);

#endif
