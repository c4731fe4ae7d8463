/*
 * struct weights_told: what the trainer has told of the weights that sample, their version and
 * those of LoRA adapters, and the file that keeps it: STATE_DIR/weights.json. Whoever was asked
 * changes the file; every worker obeys what it says, at its start, when it is told to, and when it
 * sees that the file has changed. So it outlives restarts, upgrades and crashes.
 */
#ifndef RG_ENGINE_WEIGHTS_FILE_H
#define RG_ENGINE_WEIGHTS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "worker/engine/pool/lora.h"

struct weights_told {
    struct buf version; /* empty: none */
    struct lora_book loras;
};

void weights_told_done(struct weights_told *w);

/* No file: nothing was told. ERR_CONFIG: it cannot be read; then there is nothing in *ret. */
int weights_load(const char *state_dir, struct weights_told *ret, struct err *e);

/* From now on the version of that adapter (absent: of the weights themselves) is this one; absent
 * or empty: nobody knows it. durable: on the disk when this returns. -1, and the file is as before:
 * ERR_INVALID there are too many adapters, ERR_STORAGE_FAILED. */
int weights_tell(const char *state_dir, struct str adapter, struct str version, bool durable,
                 struct err *e);

/* Changes when the file does; 0: there is none. */
uint64_t weights_stamp(const char *state_dir);

#endif
