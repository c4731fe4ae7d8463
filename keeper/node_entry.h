/*
 * Values of the entries "node:NAME" and "fleet" of a store (common/fleet/fleet_store.h), as JSON.
 * Pure. Other nodes wrote them, maybe of another build: unknown members are ignored.
 */
#ifndef RG_KEEPER_NODE_ENTRY_H
#define RG_KEEPER_NODE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/fleet/place_table.h"
#include "common/proc/keys.h"

struct buf;

enum { FLEET_LAYOUT = 1, ENTRY_TEXT_MAX = 33, ENTRY_SECRETS_MAX = 8 };

/* What a node says about itself. */
struct node_entry {
    char address[FLEET_ADDRESS_MAX];
    char instance[ENTRY_TEXT_MAX];  /* random name of its state folder */
    char build[ENTRY_TEXT_MAX];     /* version of the program */
    char tokenizer[ENTRY_TEXT_MAX]; /* fingerprint */
    bool draining;
    uint32_t load, block, oldest_record, newest_record;
    uint32_t sessions, calls, capacity; /* place_table.h */
    uint64_t edition;                   /* of the orders that it obeys */
    uint64_t lease_ms;                  /* written for commands; nodes do not read it */
};

void node_entry_write(const struct node_entry *n, struct buf *out);

/* -1: the text has another form; *ret is then unspecified. */
int node_entry_read(struct str text, struct node_entry *ret);

/* What all nodes must have in common. */
struct fleet_entry {
    uint64_t layout;
    char secrets[ENTRY_SECRETS_MAX][KEYS_PRINT_MAX]; /* fingerprints, newest first */
    size_t n_secrets;
    char admins[KEYS_PRINT_MAX]; /* fingerprint of the admin keys, under the newest secret */
};

/* Fills the entry of a node with these keys. */
void fleet_entry_make(const struct keys *k, struct fleet_entry *ret);
void fleet_entry_write(const struct fleet_entry *f, struct buf *out);
int fleet_entry_read(struct str text, struct fleet_entry *ret);

bool fleet_entry_is_same(const struct fleet_entry *a, const struct fleet_entry *b);

/* Returns why a node with `mine` cannot join, or NULL. While a secret is rotated, one side knows
 * the newest of the other. */
const char *fleet_entry_fault(const struct fleet_entry *mine, const struct fleet_entry *stored);

#endif
