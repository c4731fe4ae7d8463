/*
 * What engines would hold the loop with (worker/engine/pool/engine_work.h) is long work as any
 * other's.
 */
#ifndef RG_CALL_ENGINE_HELPER_H
#define RG_CALL_ENGINE_HELPER_H

struct engine_helper;

/* ctx is the struct call_env. */
extern const struct engine_helper call_engine_helper;

#endif
