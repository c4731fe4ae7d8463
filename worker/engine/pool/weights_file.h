/*
 * struct weights_told: the trainer's versions of the sampling weights and of LoRA adapters, and the
 * file with them: STATE_DIR/weights.json. The worker that gets a request changes the file. Every
 * worker applies the file: at its start, when it is asked to, and when it sees that the file has
 * changed. So the versions outlive restarts, upgrades and crashes.
 */
#ifndef RG_ENGINE_WEIGHTS_FILE_H
#define RG_ENGINE_WEIGHTS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "worker/engine/pool/lora.h"

struct weights_told {
    struct buf version; /* empty: no version is set */
    struct lora_book loras;
};

void weights_told_done(struct weights_told *w);

/* Loads the file; without a file no version is set. Returns -1 with ERR_CONFIG, and an empty *ret,
 * if it cannot be read. */
int weights_load(const char *state_dir, struct weights_told *ret, struct err *e);

/* Sets the version of the adapter (absent: of the weights themselves). An absent or empty version
 * means unknown. durable: it is on the disk when this returns. Returns -1, with the file unchanged:
 * ERR_INVALID if there are too many adapters, or ERR_STORAGE_FAILED. */
int weights_tell(const char *state_dir, struct str adapter, struct str version, bool durable,
                 struct err *e);

/* Like weights_tell, but replaces all adapters. The book is unspecified afterwards; the caller
 * frees it. */
int weights_replace_loras(const char *state_dir, struct lora_book *loras, bool durable,
                          struct err *e);

/* Returns a number that changes when the file does; 0: there is none. */
uint64_t weights_stamp(const char *state_dir);

#endif
