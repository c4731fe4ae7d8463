/*
 * Folders of journals in the state folder. `worker-INDEX` belongs to the worker of that index,
 * `dispatcher` to the index FLEET_DISPATCHER. In a fleet the folder of a place that another node
 * has is renamed to NAME.END.
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

/* Returns when a file of the folder was changed last, by the wall clock; 0: there is none. */
uint64_t place_folder_newest_ms(const char *state_dir, uint32_t index);

/* Renames the folder to NAME.END, or to the next name that no file has, and returns the new
 * path. Returns 0; 1 if there is no folder; -1 with ERR_IO. */
int place_folder_rename(const char *state_dir, uint32_t index, const char *end,
                        char ret[PLACE_FOLDER_MAX], struct err *e);

#endif
