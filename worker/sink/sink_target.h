/*
 * struct target: one --sink with its queue of spooled files. The queue, the retries and the
 * accounts are here; how a file is given away is the kind's business (file_target.c,
 * redis_target.c). One file at a time, in the order of their spooling.
 */
#ifndef RG_SINK_SINK_TARGET_H
#define RG_SINK_SINK_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/os/loop.h"

struct loop;
struct metrics_page;
struct spooled;
struct target;
struct tasks;

/* What every kind needs to know; owned by struct sinks. */
struct target_env {
    struct loop *loop;
    struct tasks *tasks;
    struct metrics_page *page;
    const char *state_dir;
    uint64_t inline_max, retention_ms;
    bool durable; /* files that leave the spool must be on disk at their destination (--durability
                     power) */
};

/* A spooled file. */
struct parcel {
    struct parcel *next;
    uint32_t place;
    uint64_t bytes; /* on disk */
    bool postponed; /* it alone was not taken */
    bool group;     /* a group's entry: JSON; session_id is its target_group_name */
    char session_id[];
};

#define PARCEL_GROUP "group:"

struct target_kind {
    const char *name; /* in the setting, before the colon */
    bool groups;      /* takes entries of groups, too */

    /* Whether what stands behind the colon (may be absent) can be opened; makes nothing. */
    int (*check)(struct str spec, struct err *e);
    /* Reads it and makes kind->state. */
    int (*open)(struct target *t, struct str spec, struct err *e);

    /* Gives t->first away, which is open as t->open and lies at `path`: target_done is called,
     * later or at once. */
    void (*send)(struct target *t, const char *path);

    /* Stops what is under way, without target_done, and frees the state. Tasks have ended. */
    void (*close)(struct target *t);
};

extern const struct target_kind target_file, target_redis;

struct target {
    const struct target_kind *kind;
    const struct target_env *env;
    void *state;
    char *name; /* name of its folder in the spools, which depends on the setting only */
    struct parcel *first, **end;
    struct map queued; /* parcels by session id */
    size_t n;
    uint64_t bytes;
    VEC(uint32_t) places;
    uint64_t pointed_bytes; /* files that entries already sent point to */
    bool sending, down;
    uint64_t reason;      /* hash of why it is down */
    struct spooled *open; /* the file that is being sent; own */
    uint64_t delay_ms;
    struct loop_timer retry;
};

/* Whether a setting can be opened. ERR_CONFIG. */
int target_check(const char *setting, struct err *e);

/* Makes a target of "KIND" or "KIND:WHAT". ERR_CONFIG. */
int target_new(const struct target_env *env, const char *setting, struct target **ret,
               struct err *e);
void target_free(struct target *t);

/* The path of its folder in a place's spool, NUL-terminated. */
void target_folder(const struct target *t, uint32_t place, struct buf *ret);

/* Makes its folder and queues the files there, the oldest first. */
int target_scan(struct target *t, uint32_t place, struct err *e);

/* Queues a file that was just put into its folder, unless one of that name waits already; a
 * session's place and id. */
void target_add(struct target *t, uint32_t place, struct str session_id);

/* Appends the name of a group's entry, by which it is written and queued (as a session by its id):
 * the same for the same entry, another for another one of that group's id. */
void target_group_name(struct str group, struct str entry, struct buf *ret);

/* Writes a group's entry into its folder of the place, unless it waits already; target_add queues
 * it. ERR_IO, ERR_STORAGE_FULL: nothing is there. */
int target_write_group(const struct target *t, uint32_t place, struct str name, struct str entry,
                       struct err *e);

/* Reports whether a file of that name in a target's folder is a group's entry that was being
 * written. Before the first target_write_group of the folder such a file may be removed: its writer
 * died, and the entry is given again. */
bool target_is_part(struct str name);

/* Removes what target_write_group wrote, unless it waits. */
void target_unwrite_group(const struct target *t, uint32_t place, struct str name);

/* For kinds: the first file was taken, or it was not and `why` says so; then it is tried again. */
void target_done(struct target *t, const struct err *why);

/* For kinds: only the first file cannot be taken now. It is tried again later, and others before.
 */
void target_postpone(struct target *t, const struct err *why);

/* Now and then: files that were pointed to long enough. */
void target_sweep(struct target *t);

#endif
