/*
 * The lines of the file of a test store (file_store.h): effects, which every process replays.
 *     {"key": "place:7", "owner": "a", "epoch": 9, "beat": 1, "whole": true}
 *     {"key": "node:a", "value": "...", "edition": 1, "beat": 3}
 *     {"log": "7/w7-1", "first": 0, "records": ["..."]}
 * The value of the key "server" is what the file plays: "SERVER", or after a promotion "SERVER
 * BEFORE REPLICAS", numbers. The beat of "servers:SERVER" is the time of its last renewal. The last
 * line of a key or log is its state.
 */
#ifndef RG_TEST_FILE_LINES_H
#define RG_TEST_FILE_LINES_H

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/fleet/fleet_store.h"
#include "common/os/loop.h"

enum { READ_BYTES = 1 << 20 };

struct file_entry {
    struct store_entry e; /* texts are in the arena */
    uint64_t base;        /* the claim that the entry of a place stems from */
    uint64_t server;      /* of a place: the server that had all; 0: unknown */
    uint64_t told;        /* of a place: newest claim of another server that was told */
    bool replicated;      /* of a place: each answer waited for a replica */
    bool changed;         /* not reported yet */
};

struct file_log {
    struct str name; /* "7/SESSION" */
    uint64_t first;
    bool complete;
    VEC(struct str) records;
};

struct file_answer {
    struct store_answer a;
    struct store_call call;
};

struct file_store {
    struct store store;
    struct loop *loop;
    int fd;
    uint64_t at;        /* number of replayed bytes */
    struct arena arena; /* grows while the store exists */
    struct map entries, logs;
    VEC(struct file_answer) answers;
    struct loop_task answering;
    struct loop_timer looking;
    store_watch_fn watch;
    void *watch_ctx;
    bool complete;                /* the watch has reported all entries */
    unsigned long long server[3]; /* this one, the one before, and how many replicas that one had */
};

/* Return the entry or log, which they make if there is none. */
struct file_entry *file_find_entry(struct file_store *s, struct str key);
struct file_log *file_find_log(struct file_store *s, uint32_t place, struct str session);

/* Locks the file and replays the effects of other processes. */
void file_begin_call(struct file_store *s);

/* Append a state to the locked file. changed: watches report it. */
void file_write_entry(struct file_store *s, struct file_entry *entry, bool changed);
void file_write_log(struct file_store *s, const struct file_log *log);

#endif
