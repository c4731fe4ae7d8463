/*
 * Folders of journals in the state folder. `worker-INDEX` belongs to the worker of that index,
 * `dispatcher` to the index FLEET_DISPATCHER. In a fleet the folder of a place that another node
 * has is renamed to NAME.END, and each folder has the base of its records in the file `fleet-base`.
 */
#ifndef RG_PROC_PLACE_FOLDER_H
#define RG_PROC_PLACE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

enum { PLACE_FOLDER_MAX = 4096 + 64 };

#define PLACE_FOLDER_LOST "lost"         /* another node has taken the place */
#define PLACE_FOLDER_RELEASED "released" /* this node has given it up */

/* Reports whether there is a folder of that index. */
bool place_folder_exists(const char *state_dir, uint32_t index);

/* Reads the base of the folder's records (common/fleet/fleet_store.h). *ret is 0 without a folder,
 * and FLEET_BASE_OLDEST if no base was written. Returns -1 with ERR_IO if it cannot be read. */
int place_folder_read_base(const char *state_dir, uint32_t index, uint64_t *ret, struct err *e);

/* Writes the base. Makes the folder if there is none. durable: the base is on the disk before this
 * returns. Returns -1 with ERR_IO. */
int place_folder_write_base(const char *state_dir, uint32_t index, uint64_t base, bool durable,
                            struct err *e);

/* Renames the folder, if there is one, to NAME.END or to the next name that no file has, and logs
 * it. Returns false if it cannot be renamed. */
bool place_folder_put_aside(const char *state_dir, uint32_t index, const char *end);

#endif
