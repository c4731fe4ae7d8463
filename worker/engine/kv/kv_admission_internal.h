/*
 * struct admission from the inside (kv_admission.h): held calls and waiting sessions. For
 * kv_admission.c and its test.
 */
#ifndef RG_ENGINE_KV_ADMISSION_INTERNAL_H
#define RG_ENGINE_KV_ADMISSION_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/os/loop.h"
#include "worker/engine/kv/leases.h"
#include "worker/engine/pool/fair_queue.h"

struct engine_pool;

struct admission {
    struct engine_pool *pool;
    struct leases leases;
    struct map tickets; /* session -> struct ticket */
    struct list_head row;
    size_t n_sessions;      /* number of sessions with held calls */
    struct fair_queue held; /* held calls; used only for counting */
    uint64_t mean_size;     /* mean size of about eight sessions at their ends; 0: none has ended */
    struct loop_timer tick;
    uint64_t tick_ms; /* time of the next tick; 0: it is not set */
};

#endif
