/*
 * The Redis and Valkey kind of a store (fleet_store.h). Keys begin with "rg:NAME:"; a key of one
 * place holds its index in braces:
 *
 *     node:NAME, block:N, orders, fleet   hash    value, edition; nodes: beat
 *     place:{INDEX}                       hash    members of struct store_entry
 *     sessions:{INDEX}                    hash    id -> number of the log's first record
 *     complete:{INDEX}                    set     store_log.complete, while the place is not whole
 *     log:{INDEX}:SESSION                 list    records
 *     beats                               hash    node -> beat
 *     servers                             hash    server -> time of its last renewal, and how many
 *                                                 replicas it had at most
 *     index                               set     names of all entries
 *     changes                             channel the name of an entry that changed
 *
 * INDEX of the dispatcher's place is "d". Three connections at most, each made by its first call:
 * claims, changes, and all other calls. So no claim that waits for a replica delays beats.
 */
#ifndef RG_FLEET_REDIS_STORE_H
#define RG_FLEET_REDIS_STORE_H

#include "common/base/err.h"
#include "common/fleet/fleet_store.h"

struct loop;

/* Makes the store of a URL. Connects at the first call. `limit_ms`: longest silence of the server
 * while an answer is due. NULL with ERR_CONFIG or ERR_IO. */
struct store *redis_store_open(struct loop *loop, struct str url, unsigned limit_ms, struct err *e);

/* Uses a fleet's name that is not the URL's. Before the first call. */
void redis_store_set_name(struct store *s, const char *name);

/* From now on an append is answered when a replica has its records, too. Otherwise it ends with
 * STORE_LOST. */
void redis_store_await_replica(struct store *s);

/* Reads the server's INFO: texts[0]. */
void redis_store_info(struct store *s, struct store_call call);

/* Ends the connection of all calls but claims: the next one may reach another server. Calls without
 * an answer end later, with STORE_LOST. Not from within a function of the store. */
void redis_store_reconnect(struct store *s, const char *why);

/* Deletes the entries of a lost node, whose beat is still this one: its own, those of its blocks
 * and of their places. STORE_ALIVE: it has beaten. Otherwise `value` is the index of a place that
 * has sessions (STORE_CONFLICT), is not whole (STORE_INCOMPLETE) or has an owner (STORE_OVERTAKEN).
 */
void redis_store_forget(struct store *s, struct str node, uint64_t beat, struct store_call call);

/* Deletes everything of this fleet's name. */
void redis_store_erase(struct store *s, struct store_call call);

#endif
