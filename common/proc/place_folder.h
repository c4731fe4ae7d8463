/*
 * Folders of journals in the state folder. `worker-INDEX` belongs to the worker of that index,
 * `dispatcher` to the index FLEET_DISPATCHER. In a fleet the folder of a place that another node
 * has is renamed to NAME.END, and each folder has the base of its records in the file `fleet-base`,
 * with ` unread` while the store has records that the folder lacks.
 */
#ifndef RG_PROC_PLACE_FOLDER_H
#define RG_PROC_PLACE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

enum { PLACE_FOLDER_MAX = 4096 + 64 };

#define PLACE_FOLDER_LOST "lost"         /* another node has taken the place */
#define PLACE_FOLDER_RELEASED "released" /* this node has given it up */

/* Parses "worker-12". False for any other name. */
bool worker_folder_parse(const char *name, uint32_t *ret_index);

/* Reports whether there is a folder of that index. */
bool place_folder_exists(const char *state_dir, uint32_t index);

/* The claim that a folder's records stem from (common/fleet/fleet_store.h). */
struct place_base {
    uint64_t claim; /* 0: there is no folder; FLEET_BASE_OLDEST: no base was written */
    bool unread;    /* the store had records that the folder lacks, and maybe has them yet */
};

/* Reads the base. Returns -1 with ERR_IO if it cannot be read. */
int place_folder_read_base(const char *state_dir, uint32_t index, struct place_base *ret,
                           struct err *e);

/* Writes the base. Makes the folder if there is none. durable: the base is on the disk before this
 * returns. Returns -1 with ERR_IO. */
int place_folder_write_base(const char *state_dir, uint32_t index, struct place_base base,
                            bool durable, struct err *e);

/* Renames the folder, if there is one, to NAME.END or to the next name that no file has, and logs
 * it. Returns false if it cannot be renamed. */
bool place_folder_put_aside(const char *state_dir, uint32_t index, const char *end);

#endif
