/*
 * struct engine_set: which engines there are, as arguments of --engine with the number of each, and
 * the file that keeps what /admin/engines made of them: STATE_DIR/engines.json. It has the --engine
 * settings that it was made under, and holds only while they are the same: whoever changes them has
 * the newer word. It is replaced whole, so a reader sees the old set or the new one.
 */
#ifndef RG_ENGINE_ENGINE_SET_H
#define RG_ENGINE_ENGINE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

/* --engine none: the gateway begins without engines, and waits for /admin/engines. */
#define ENGINE_SET_NONE "none"

struct engine_entry {
    const char *text; /* the argument */
    unsigned number;  /* of its counts in metrics and on the board */
};

struct engine_set {
    struct engine_entry *at;
    size_t n, cap;
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

/* What the file has, or the settings' own when there is none or it belongs to other settings
 * (*told, which may be NULL, is then true). ERR_CONFIG: it cannot be read; the set is empty. */
int engine_set_load(struct engine_set *s, const struct engine_home *h, bool *told, struct err *e);

/* Durable when it returns. ERR_STORAGE_FAILED: the file is as before. */
int engine_set_save(const struct engine_set *s, const struct engine_home *h, struct err *e);

/* Changes when the file does; 0: there is none. */
uint64_t engine_set_stamp(const char *state_dir);

/* Nobody else changes the file until the descriptor is closed. -1: ERR_STATE_CONFLICT, somebody is
 * at it; ERR_STORAGE_FAILED. */
int engine_set_lock(const char *state_dir, struct err *e);

/* The name of an engine by its argument; NULL: it cannot be understood. */
const char *engine_set_name(struct arena *a, const char *text);

/* ERR_CONFIG when an argument cannot be understood, or two have one name. */
int engine_set_check(const struct engine_set *s, struct err *e);

#endif
