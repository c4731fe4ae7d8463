/*
 * struct target: one --sink with its queue of spooled files. This file has the queue, the retries
 * and the counts. The kind knows how a file is sent (file_target.c, redis_target.c). A target sends
 * one file at a time, in the order of spooling.
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

/* Most bytes of a value in Redis. In a fleet entries have their data up to it: the file of a node
 * that is lost or drained cannot be read where its entry says. */
enum { TARGET_INLINE_MAX = 512 << 20 };

/* Settings and objects that all kinds use; owned by struct sinks. */
struct target_env {
    struct loop *loop;
    struct tasks *tasks;
    struct metrics_page *page;
    const char *state_dir;
    uint64_t inline_max, retention_ms;
    uint64_t stall_ms; /* a server that neither reads nor answers for so long is given up */
    /* The target has taken the session's file; with ctx. */
    void (*delivered)(void *ctx, struct str session_id);
    void *ctx;
    bool durable; /* a file must be on disk at its destination before it leaves the spool
                     (--durability power) */
};

/* A spooled file that waits in a queue. */
struct parcel {
    struct parcel *next;
    uint32_t place;
    uint64_t bytes; /* on disk */
    bool postponed; /* the target rejected this file, but may accept others */
    bool group;     /* a group's entry: JSON; session_id is its target_group_name */
    char session_id[];
};

#define PARCEL_GROUP "group:"

struct target_kind {
    const char *name; /* the text before the colon in the setting */
    bool groups;      /* accepts entries of groups, too */

    /* Checks whether the text after the colon (may be absent) can be opened. Makes nothing. */
    int (*check)(struct str spec, struct err *e);
    /* Tries whether what the checked text names would take files; blocks. NULL: check did that. */
    int (*reach)(struct str spec, struct err *e);
    /* Opens the target of the text after the colon, and sets t->state. */
    int (*open)(struct target *t, struct str spec, struct err *e);

    /* Sends t->first, which lies at `path` and is mapped as t->open. Calls target_done or
     * target_postpone, possibly before it returns. */
    void (*send)(struct target *t, const char *path);

    /* Stops sending, without target_done, and frees the state. Tasks have ended before. */
    void (*close)(struct target *t);
};

extern const struct target_kind target_file, target_redis;

struct target {
    const struct target_kind *kind;
    const struct target_env *env;
    void *state;
    char *name; /* name of its folder in the spools; depends only on the setting */
    struct parcel *first, **end;
    struct map queued; /* parcels by session id */
    size_t n;
    uint64_t bytes;
    VEC(uint32_t) places;
    uint64_t pointed_bytes; /* bytes of files to which sent entries point */
    bool sending, down;
    uint64_t reason;      /* hash of the last error's text; each reason is logged once */
    struct spooled *open; /* the file that is being sent; owned */
    uint64_t delay_ms;
    struct loop_timer retry;
};

/* Checks whether a setting can be opened. Fails with ERR_CONFIG. */
int target_check(const char *setting, struct err *e);

/* Tries whether the target of a setting would take files now. Blocks for some seconds. Fails with
 * ERR_CONFIG or ERR_IO. */
int target_reach(const char *setting, struct err *e);

/* Makes a target from "KIND" or "KIND:SPEC". env must outlive it. Fails with ERR_CONFIG. */
int target_new(const struct target_env *env, const char *setting, struct target **ret,
               struct err *e);
/* Stops sending and frees the target. Its files stay in the spool. */
void target_free(struct target *t);

/* Sets *ret to the path of the target's folder in a place's spool. */
void target_folder(const struct target *t, uint32_t place, struct buf *ret);

/* Makes the target's folder in a place's spool, and queues the files in it, the oldest first. Fails
 * with ERR_IO. */
int target_scan(struct target *t, uint32_t place, struct err *e);

/* Queues a file that was just put into the target's folder. Does nothing if a file with that name
 * already waits. session_id: of the session, or the name from target_group_name. */
void target_add(struct target *t, uint32_t place, struct str session_id);

/* Appends the name under which a group's entry is written and queued. Equal entries have equal
 * names. Different entries of the same group id have different names. Fails with ERR_INVALID if
 * `group` is not a group's id. */
int target_group_name(struct str group, struct str entry, struct buf *ret, struct err *e);

/* Writes a group's entry into the target's folder, unless it already waits. target_add queues it.
 * Fails with ERR_IO or ERR_STORAGE_FULL; then no file is left. */
int target_write_group(const struct target *t, uint32_t place, struct str name, struct str entry,
                       struct err *e);

/* Reports whether a file in a target's folder is an incomplete group entry. Such a file may be
 * removed before the first target_write_group of the folder: its writer died, and the entry will be
 * sent again. */
bool target_is_part(struct str name);

/* Removes the file that target_write_group wrote, unless the entry is queued. */
void target_unwrite_group(const struct target *t, uint32_t place, struct str name);

/* Ends the sending of the first file; kinds call it. why: the error, after which the file is sent
 * again; NULL: the target has the file. */
void target_done(struct target *t, const struct err *why);

/* Moves the first file to the end of the queue; kinds call it if the target rejects only this
 * file. */
void target_postpone(struct target *t, const struct err *why);

/* Removes pointed files whose retention has ended, and sums up the others. Call it from time to
 * time. */
void target_sweep(struct target *t);

/* Removes incomplete exports and entries from a place's spool, and logs leftover files. is_set
 * reports whether a sink of that name is set. */
void spool_scan(const char *state_dir, uint32_t index,
                bool (*is_set)(const void *sinks, const char *name), const void *sinks);

#endif
