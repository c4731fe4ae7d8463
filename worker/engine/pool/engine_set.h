/*
 * struct engine_set: the engines as arguments of --engine with their numbers, and the file with the
 * changes of /admin/engines: STATE_DIR/engines.json. The file contains the --engine settings at the
 * time of the change. If they differ at a start, the settings win. It is replaced whole, so a
 * reader sees the old set or the new one.
 */
#ifndef RG_ENGINE_ENGINE_SET_H
#define RG_ENGINE_ENGINE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

/* The pool of the model that is trained; engines without a name are its. */
#define ENGINE_POOL_POLICY "policy"

/* --engine none: the gateway begins without engines, and waits for /admin/engines. */
#define ENGINE_SET_NONE "none"

struct engine_target;

struct engine_entry {
    const char *text; /* the argument */
    unsigned number;  /* number of its counts in metrics and on the board */
};

/* Pools: where some engine has no name, or is called `policy`, names are those of pools, and what
 * has none is the policy's. Where all engines have other names, and no pool is
 * known from before, names are mere names, and all are the policy's. A known pool stays one, also
 * without engines: a request for it must not be answered by the policy. */
struct engine_set {
    struct engine_entry *at;
    size_t n, cap;

    struct {
        const char **at;
        size_t n, cap;
    } pools; /* known, but for the policy's */

    size_t kept_pools; /* number of the first ones, which the file has */

    uint64_t edition; /* counts what /admin/engines has made; 0: the settings' own */
    struct arena arena;
};

/* The --engine settings of this run, and where the file is. */
struct engine_home {
    const char *state_dir;
    const char *const *settings;
    size_t n;
};

/* Adds an engine; the text is copied. */
void engine_set_add(struct engine_set *s, struct str text, unsigned number);

/* The settings alone, in their order. */
void engine_set_of(struct engine_set *s, const char *const *texts, size_t n);
void engine_set_done(struct engine_set *s);

/* Loads the set of the file, or of the settings if there is no file or it belongs to other
 * settings. Then its pools are still known, and *told (may be NULL) is true if it had a change by
 * /admin/engines. ERR_CONFIG: it cannot be read; the set is empty. */
int engine_set_load(struct engine_set *s, const struct engine_home *h, bool *told, struct err *e);

/* Writes the set as it was loaded if the file lacks pools that it knows. Errors as
 * engine_set_lock and engine_set_save. */
int engine_set_keep_pools(const struct engine_set *s, const struct engine_home *h, struct err *e);

/* Durable when it returns. ERR_STORAGE_FAILED: the file is as before. */
int engine_set_save(const struct engine_set *s, const struct engine_home *h, struct err *e);

/* Changes when the file does; 0: there is none. */
uint64_t engine_set_stamp(const char *state_dir);

/* Locks the file until the descriptor is closed. -1: ERR_STATE_CONFLICT, another process changes
 * it; ERR_STORAGE_FAILED. */
int engine_set_lock(const char *state_dir, struct err *e);

/* The pools of `now`, which may be NULL, are known here, too, and those that the engines name.
 * ERR_CONFIG when an engine of both sets would go from one pool to another. */
int engine_set_follow(struct engine_set *s, const struct engine_set *now, struct err *e);

/* The pool of an engine of the set; NULL: the policy's. */
const char *engine_set_pool(const struct engine_set *s, const struct engine_target *t);

/* Returns the pool of an engine by its argument. */
const char *engine_set_pool_of(const struct engine_set *s, struct arena *a, const char *text);

/* The engines of one pool (NULL: the policy's), with their numbers, as a set of their own. */
void engine_set_part(const struct engine_set *s, const char *pool, struct engine_set *ret);

/* The name of an engine of the set by its argument: its own, else the pool's where it is alone in
 * it, else the argument without options. NULL: it cannot be understood. */
const char *engine_set_name(const struct engine_set *s, struct arena *a, const char *text);

/* ERR_CONFIG when an argument cannot be understood, has an option that means nothing in its pool,
 * or two have one name. */
int engine_set_check(const struct engine_set *s, struct err *e);

#endif
