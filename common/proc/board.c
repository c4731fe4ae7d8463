/* The board (board.h): memory that all processes of a gateway share, made of atomics only. Each
 * field has one writer, or is a counter. Readers see each field at a different moment, so no field
 * may depend on a second one. */

#include "common/proc/board.h"

#include <sys/mman.h>
#include <sys/random.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/proc/run_board.h"

struct board *board_new(void)
{
    void *map =
        mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct board *b;

    CHECK(map != MAP_FAILED);
    b = map;
    b->run = run_board_new((uint64_t)clock_wall_ms());
    CHECK(getrandom(&b->hash_seed, sizeof(b->hash_seed), 0) == sizeof(b->hash_seed));
    return b;
}

void board_free(struct board *b)
{
    if (!b)
        return;
    run_board_free(b->run);
    (void)munmap(b, sizeof(*b));
}

void board_quarantine(struct board *b, uint64_t body_hash, uint64_t now_ms)
{
    uint32_t place;

    if (body_hash == 0 || board_is_quarantined(b, body_hash, now_ms))
        return;
    place =
        atomic_fetch_add_explicit(&b->quarantined, 1, memory_order_relaxed) % BOARD_QUARANTINE_MAX;
    atomic_store_explicit(&b->quarantine_until_ms[place], now_ms + BOARD_QUARANTINE_MS,
                          memory_order_relaxed);
    atomic_store_explicit(&b->quarantine[place], body_hash, memory_order_release);
}

bool board_is_quarantined(const struct board *b, uint64_t body_hash, uint64_t now_ms)
{
    uint32_t n = atomic_load_explicit(&b->quarantined, memory_order_relaxed);

    for (uint32_t i = 0; i < n && i < BOARD_QUARANTINE_MAX; i++)
        if (atomic_load_explicit(&b->quarantine[i], memory_order_acquire) == body_hash &&
            now_ms < atomic_load_explicit(&b->quarantine_until_ms[i], memory_order_relaxed))
            return true;
    return false;
}

void board_forget_works(struct board *b, unsigned slot)
{
    for (unsigned i = 0; i < BOARD_WORKS_MAX; i++)
        atomic_store_explicit(&b->slots[slot].works[i], 0, memory_order_relaxed);
}

unsigned board_workers_ready(const struct board *b)
{
    unsigned ready = 0;

    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++)
        ready += board_ready(b, BOARD_WORKER0 + i) && !board_is_foreign(b, i);
    return ready;
}

unsigned board_workers_paused(const struct board *b)
{
    unsigned paused = 0;

    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++)
        paused += board_ready(b, BOARD_WORKER0 + i) &&
                  atomic_load_explicit(&b->slots[BOARD_WORKER0 + i].paused, memory_order_relaxed);
    return paused;
}

unsigned board_workers_full(const struct board *b)
{
    unsigned full = 0;

    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++)
        full += board_ready(b, BOARD_WORKER0 + i) && !board_is_foreign(b, i) &&
                atomic_load_explicit(&b->slots[BOARD_WORKER0 + i].full, memory_order_relaxed);
    return full;
}

uint64_t board_orders(const struct board *b)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = BOARD_WORKER0; i < BOARD_WORKER0 + BOARD_WORKERS_MAX; i++)
        if (board_ready(b, i))
            least = MIN_OF(least, atomic_load_explicit(&b->slots[i].orders, memory_order_relaxed));
    return least == UINT64_MAX ? 0 : least;
}

static uint32_t load_index(const struct board *b, uint32_t place)
{
    return atomic_load_explicit(&b->slots[BOARD_WORKER0 + place].index, memory_order_relaxed);
}

uint32_t board_index(const struct board *b, uint32_t place)
{
    uint32_t set = load_index(b, place);

    return set ? set - 1 : b->worker_base + place;
}

void board_set_index(struct board *b, uint32_t place, uint32_t index)
{
    atomic_store_explicit(&b->slots[BOARD_WORKER0 + place].index,
                          index == b->worker_base + place ? 0 : index + 1, memory_order_relaxed);
}

void board_set_came(struct board *b, uint32_t place, bool came)
{
    atomic_store_explicit(&b->slots[BOARD_WORKER0 + place].came, came, memory_order_relaxed);
}

bool board_is_foreign(const struct board *b, uint32_t place)
{
    return board_index(b, place) - b->worker_base >= BOARD_WORKERS_MAX ||
           atomic_load_explicit(&b->slots[BOARD_WORKER0 + place].came, memory_order_relaxed) != 0;
}

int board_place(const struct board *b, uint32_t index)
{
    uint32_t own = index - b->worker_base;
    bool usual = own < BOARD_WORKERS_MAX && load_index(b, own) == 0;

    if (usual && atomic_load_explicit(&b->slots[BOARD_WORKER0 + own].state, memory_order_relaxed) !=
                     BOARD_EMPTY)
        return (int)own;
    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++)
        if (load_index(b, place) == index + 1)
            return (int)place;
    return usual ? (int)own : -1;
}

int board_resolve(const struct board *b, uint32_t index)
{
    int at = board_place(b, index);
    uint32_t place = at < 0 ? BOARD_WORKERS_MAX : (uint32_t)at;

    /* The adopter may have been retired later, too, so follow the chain. A chain has at most
     * BOARD_WORKERS_MAX steps. */
    for (unsigned hops = 0; hops < BOARD_WORKERS_MAX && place < BOARD_WORKERS_MAX; hops++) {
        const struct board_slot *slot = &b->slots[BOARD_WORKER0 + place];
        uint32_t adopter = atomic_load_explicit(&slot->adopter, memory_order_relaxed);

        if (!adopter)
            return atomic_load_explicit(&slot->state, memory_order_relaxed) == BOARD_EMPTY
                       ? -1
                       : (int)place;
        place = adopter - 1;
    }
    return -1;
}

bool board_engine_answers(const struct board *b)
{
    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++) {
        if (atomic_load_explicit(&b->slots[BOARD_WORKER0 + i].engines_up, memory_order_relaxed) > 0)
            return true;
    }
    return false;
}

const char *board_engines_basis(const struct board *b, unsigned i, bool asked, bool *ret_some)
{
    static const char *const names[] = {"unknown", "raw", "temperature", "processed"};

    *ret_some = false;
    for (unsigned w = 0; w < BOARD_WORKERS_MAX; w++) {
        const struct board_slot *slot = &b->slots[BOARD_WORKER0 + w];
        uint32_t bits = atomic_load_explicit(&slot->engines_basis, memory_order_relaxed);

        if (board_ready(b, BOARD_WORKER0 + w) && (bits >> (asked ? BOARD_BASIS_ASKED + i : i) & 1))
            *ret_some = true;
    }
    return i < ARRAY_LEN(names) ? names[i] : NULL;
}

const char *board_engines_lack(const struct board *b, unsigned i, bool *ret_some)
{
    static const char *const names[] = {
#define X(name, text) text,
#include "common/proc/engine_lacks.def"
#undef X
    };

    *ret_some = false;
    for (unsigned w = 0; w < BOARD_WORKERS_MAX; w++) {
        const struct board_slot *slot = &b->slots[BOARD_WORKER0 + w];
        uint32_t bits = atomic_load_explicit(&slot->engines_lack, memory_order_relaxed);

        *ret_some = *ret_some || (board_ready(b, BOARD_WORKER0 + w) && bits >> i & 1);
    }
    return i < ARRAY_LEN(names) ? names[i] : NULL;
}

uint32_t board_engines_drift(const struct board *b)
{
    uint32_t most = 0;

    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++) {
        uint32_t n =
            atomic_load_explicit(&b->slots[BOARD_WORKER0 + i].engines_drift, memory_order_relaxed);

        most = MAX_OF(most, n);
    }
    return most;
}

int board_check_ready(const struct board *b, const char **ret_reason)
{
    unsigned workers = atomic_load_explicit(&b->workers, memory_order_relaxed);
    unsigned routers = atomic_load_explicit(&b->routers, memory_order_relaxed);
    unsigned serving = 0;

    *ret_reason = "draining";
    if (atomic_load_explicit(&b->draining, memory_order_relaxed) ||
        atomic_load_explicit(&b->leaving, memory_order_relaxed))
        return -1;
    *ret_reason = "a router is starting";
    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++)
        serving += board_ready(b, BOARD_ROUTER0 + i);
    if (serving < routers)
        return -1;
    *ret_reason = "a worker is starting";
    if (board_workers_ready(b) < workers)
        return -1;
    *ret_reason = "the dispatcher cannot reach a worker";
    if (atomic_load_explicit(&b->unreached, memory_order_relaxed))
        return -1;
    *ret_reason = "no engine answers";
    return board_engine_answers(b) ? 0 : -1;
}

void board_count_engines(struct board *b, unsigned slot)
{
    uint32_t places = slot - BOARD_WORKER0 + 1, had = atomic_load(&b->counting);

    CHECK(slot >= BOARD_WORKER0 && slot < BOARD_DISPATCHER);
    while (had < places && !atomic_compare_exchange_weak(&b->counting, &had, places))
        ;
}

/* Adds up all workers that count, because limits of engines hold for the whole node. */
uint32_t board_engine_inflight(const struct board *b, unsigned engine)
{
    uint32_t n = 0, places = atomic_load(&b->counting);

    for (unsigned i = BOARD_WORKER0; i < BOARD_WORKER0 + places; i++)
        n += atomic_load_explicit(&b->slots[i].engine_inflight[engine], memory_order_seq_cst);
    return n;
}

void board_forget_engines(struct board *b, unsigned slot)
{
    atomic_store_explicit(&b->slots[slot].paused, 0, memory_order_relaxed);
    atomic_store_explicit(&b->slots[slot].full, 0, memory_order_relaxed);
    atomic_store_explicit(&b->slots[slot].orders, 0, memory_order_relaxed);
    for (unsigned i = 0; i < BOARD_ENGINES_MAX; i++)
        atomic_store(&b->slots[slot].engine_inflight[i], 0);
    for (unsigned i = 0; i < BOARD_ENGINES_MAX; i++)
        atomic_store(&b->slots[slot].kv_leased[i], 0);
    atomic_store(&b->slots[slot].kv_held_since_us, 0);
    atomic_store(&b->slots[slot].kv_held, 0);
    atomic_store(&b->slots[slot].kv_untold, 0);
}

uint64_t board_kv_leased(const struct board *b, unsigned engine)
{
    uint64_t n = 0;

    for (unsigned i = BOARD_WORKER0; i < BOARD_DISPATCHER; i++)
        n += atomic_load(&b->slots[i].kv_leased[engine]);
    return n;
}

uint32_t board_kv_held(const struct board *b)
{
    uint32_t n = 0;

    for (unsigned i = BOARD_WORKER0; i < BOARD_DISPATCHER; i++)
        n += atomic_load(&b->slots[i].kv_held);
    return n;
}

bool board_kv_older(const struct board *b, unsigned slot, uint64_t since_us)
{
    for (unsigned i = BOARD_WORKER0; i < BOARD_DISPATCHER; i++) {
        uint64_t theirs = atomic_load(&b->slots[i].kv_held_since_us);

        if (i != slot && theirs > 0 && theirs < since_us)
            return true;
    }
    return false;
}

bool board_kv_untold(const struct board *b)
{
    for (unsigned i = BOARD_WORKER0; i < BOARD_DISPATCHER; i++) {
        if (atomic_load_explicit(&b->slots[i].kv_untold, memory_order_relaxed) > 0)
            return true;
    }
    return false;
}
