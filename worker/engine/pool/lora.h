/*
 * struct lora_book: the versions of LoRA adapters' weights, as the trainer set them. They are few,
 * so a search reads all. A zeroed struct is an empty book.
 */
#ifndef RG_ENGINE_LORA_H
#define RG_ENGINE_LORA_H

#include "common/base/buf.h"
#include "common/base/str.h"

struct json_out;

enum { LORAS_MAX = 64 };

struct lora {
    struct buf name, version;
};

struct lora_book {
    struct lora *at;
    size_t n, cap;
};

void lora_done(struct lora_book *b);

/* Sets the version of an adapter. An absent or empty version removes the adapter. Returns -1 if the
 * book is full. */
int lora_set(struct lora_book *b, struct str name, struct str version);

/* Writes [{"name", "version"}, ...]. */
void lora_write(const struct lora_book *b, struct json_out *o);

/* Returns the adapter's version; absent: the trainer set none. */
struct str lora_version(const struct lora_book *b, struct str name);

#endif
