/*
 * struct kv_room: the KV cache of one replica, as it reports it and as sessions hold it (leases.h),
 * for --kv-admission.
 *
 *   |<------------------------ limit: capacity x --kv-admission percent ------------------>|
 *   |  leases of all workers (board)  |  used beyond them, by others  |       room         |
 *
 * The part of others is what the engine's own figure has above all leases at the moment it came:
 * ends of our sessions since then make room at once. Part of struct replica.
 */
#ifndef RG_ENGINE_KV_ROOM_H
#define RG_ENGINE_KV_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine_options;
struct replica;

/* Asks the engine, when admission is on and no question is out. */
void kv_look(struct replica *r);

/* Returns "untold", "told" or "asked". */
const char *kv_state_name(const struct replica *r);

/* Tokens that sessions may hold; 0: as many as they like. */
uint64_t kv_limit(const struct replica *r);

/* Tokens that sessions of all workers hold. */
uint64_t kv_leased(const struct replica *r);

/* Returns the free tokens; 0 also if it does not report. */
uint64_t kv_free(const struct replica *r);

/* Takes room for a session. False: there is none, nothing is taken. A session that wants
 * all of it or more has room when no other session holds any, whatever others use. */
bool kv_take(struct replica *r, uint64_t tokens);

/* Takes (or gives back, below 0) tokens whether there is room or not. */
void kv_move(struct replica *r, int64_t tokens);

/* Publishes on the board the sessions that wait for space (kv_admission.h): this worker has n, the
 * oldest since since_us (0: none). The functions below read whether another worker has an older
 * one, and how many all have, of which `own` are this worker's. */
void kv_tell_held(const struct engine_options *o, size_t n, uint64_t since_us);
bool kv_older_held(const struct engine_options *o, uint64_t since_us);
size_t kv_count_held(const struct engine_options *o, size_t own);

#endif
