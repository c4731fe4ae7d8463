/*
 * struct kv_room: the KV cache of one replica, as it reports it and as sessions hold it (leases.h),
 * for --kv-admission.
 *
 *   |<------------------------ limit: capacity x --kv-admission percent ------------------>|
 *   |  leases of all workers (board)  |  used beyond them, by others  |       free         |
 *
 * The usage of others is the excess of the engine's own figure over all leases at the moment of the
 * report. So when one of our sessions ends later, its space is free at once. Part of struct
 * replica.
 */
#ifndef RG_ENGINE_KV_ROOM_H
#define RG_ENGINE_KV_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine_options;
struct replica;

/* Asks the engine for its cache, if admission is on and no question is pending. */
void kv_look(struct replica *r);

/* Returns the state of the reports: "untold", "told" or "asked". */
const char *kv_state_name(const struct replica *r);

/* Returns how many tokens sessions may hold; 0: unlimited. */
uint64_t kv_limit(const struct replica *r);

/* Returns how many tokens sessions of all workers hold. */
uint64_t kv_leased(const struct replica *r);

/* Returns the free tokens; 0 also if the replica does not report. */
uint64_t kv_free(const struct replica *r);

/* Reserves space for a session. Returns false, and reserves nothing, if there is too little. A
 * session that needs the whole cache or more is accepted when no other session holds any tokens,
 * whatever others use. */
bool kv_take(struct replica *r, uint64_t tokens);

/* Reserves tokens without a check (or releases them, below 0). */
void kv_move(struct replica *r, int64_t tokens);

/* Publishes on the board the sessions that wait for space (kv_admission.h): this worker has n, the
 * oldest since since_us (0: none). The functions below report whether a different worker has an
 * older one, and how many all workers have, of which `own` are this worker's. */
void kv_tell_held(const struct engine_options *o, size_t n, uint64_t since_us);
bool kv_older_held(const struct engine_options *o, uint64_t since_us);
size_t kv_count_held(const struct engine_options *o, size_t own);

#endif
