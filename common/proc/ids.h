/*
 * Session ids `w<idx>-<32 hex>` and random bytes. The index in front is the routing key: decimal,
 * no leading zeros, at most ID_INDEX_MAX. The 32 lower-case hex digits are 128 random bits from
 * mbedTLS' CTR-DRBG, seeded by the kernel. struct ids is the generator's state. Each process makes
 * its own after the fork, because two processes that share a state would make the same ids. Not
 * thread-safe. Parsing needs no state.
 */
#ifndef RG_PROC_IDS_H
#define RG_PROC_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum {
    ID_INDEX_MAX = 999999,
    ID_HEX_LEN = 32,
    ID_TEXT_MAX = 1 + 6 + 1 + ID_HEX_LEN + 1, /* with the NUL */
};

struct ids;

/* Seeds a generator. Returns NULL and e (ERR_INTERNAL) if the kernel gives no randomness. */
struct ids *ids_new(struct err *e);
void ids_free(struct ids *ids);

/* Fills `out` with random bytes. Aborts if the generator fails, because no safe way to continue
 * exists. */
void ids_random(struct ids *ids, void *out, size_t len_bytes);

/* Writes 2 * n_bytes random lower-case hex digits and a NUL. */
void ids_hex(struct ids *ids, char *out, size_t n_bytes);

/* With `on`, session ids of this process and its children are bare: only the 32 hex digits, of the
 * worker with index 0. Ids with an index are still parsed. Call it before threads start. */
void ids_set_bare(bool on);

/* Writes a new session id, NUL-terminated, and returns its length. index <= ID_INDEX_MAX. */
size_t ids_session(struct ids *ids, uint32_t index, char ret_text[ID_TEXT_MAX]);

/* Checks that the whole text is a well-formed session id. Returns 0 and its worker index, or -1. */
int ids_parse(struct str text, uint32_t *ret_index);

/* Returns a description of a session id's form, for errors. */
const char *ids_form(void);

/* Returns what is wrong with the text as a session id, as a sentence whose subject is the id ("it
 * is cut"); NULL: it is valid. The sentence does not contain the text. */
const char *ids_fault(struct str text);

#endif
