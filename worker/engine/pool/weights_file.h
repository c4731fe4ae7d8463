/*
 * struct weights_told: the trainer's versions of the sampling weights and of LoRA adapters, and the
 * file with them: STATE_DIR/weights.json. The worker that gets a request changes the file. Every
 * worker follows the file: at its start, when it is asked to, and when it sees that the file has
 * changed. So it outlives restarts, upgrades and crashes.
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

/* Loads the file; without one no version is set. ERR_CONFIG: it cannot be read; then *ret is empty.
 */
int weights_load(const char *state_dir, struct weights_told *ret, struct err *e);

/* Sets the version of that adapter (absent: of the weights themselves); an absent or empty one:
 * unknown. durable: on the disk when this returns. -1, and the file is unchanged: ERR_INVALID if
 * there are too many adapters, ERR_STORAGE_FAILED. */
int weights_tell(const char *state_dir, struct str adapter, struct str version, bool durable,
                 struct err *e);

/* Changes when the file does; 0: there is none. */
uint64_t weights_stamp(const char *state_dir);

#endif
