/* Does the long work of a request (work.h) in helper threads. While a body is worked on, its hash
 * is on the board: if the process dies, the supervisor knows which request to blame
 * (supervisor/suspects.c). A quarantined body is refused here. */

#include "worker/plane/call/work.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/tls.h"
#include "common/os/helpers.h"
#include "common/os/task.h"
#include "common/proc/board.h"
#include "common/proc/metrics.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/give_back.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session_totals.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"

/* --- tasks of a worker --- */

enum { STALL_US = 20000 }; /* the longest time that any request may hold the loop */

/* Logs what held the loop for too long. addr2line translates the logged `place`. */
static void on_stall(void *ctx, struct str owner, uint64_t us, const void *place)
{
    extern const char __executable_start[];
    struct metrics_page *page = ctx;

    metrics_count(page, METRIC_task_stalls, 1);
    log_warn(NULL, "a task kept the event loop too long", LOG_S("owner", owner), LOG_U("us", us),
             LOG_U("place", place ? (uintptr_t)place - (uintptr_t)__executable_start : 0));
}

void call_tasks_begin(struct call_env *env, const struct call_env_parts *parts)
{
    env->tasks = tasks_new(parts->loop);
    tasks_on_stall(env->tasks, STALL_US, on_stall, parts->page);
}

/* Counts a job that has ended, or whose thread hangs, in the metrics. */
static void call_count_job(void *env, const struct helper_job *j, bool hung)
{
    struct metrics_page *page = ((struct call_env *)env)->page;

    if (j->began_us == 0)
        return;
    metrics_observe_us(page, METRIC_helper_wait, j->began_us - j->pushed_us);
    metrics_observe_us(page, METRIC_helper_work, j->ended_us - j->began_us);
    if (hung)
        metrics_count(page, METRIC_helper_stuck, 1);
}

/* Ends the note on the board. */
static void end_note(void *tool)
{
    const struct work_tools *tools = tool;

    if (tools->note)
        atomic_store_explicit(tools->note, 0, memory_order_relaxed);
}

/* Gives all tasks env's helper threads. `own` (copied) are the tools that the loop itself uses. */
static void call_tasks_use_helpers(struct call_env *env, const struct work_tools *own)
{
    env->own_tools = mem_zalloc(sizeof(*env->own_tools));
    *env->own_tools = *own;
    tasks_use_helpers(env->tasks, &(struct task_helpers){env->helpers, env->own_tools, end_note,
                                                         call_count_job, env});
}

void call_tasks_finish(struct call_env *env, bool helpers_ended)
{
    tasks_finish(env->tasks, helpers_ended);
}

void call_tasks_free(struct call_env *env)
{
    tasks_free(env->tasks);
    free(env->own_tools);
}

/* --- work of a request --- */

enum { NICE = 5 };

enum { TRIM_LEAST = 32 << 20, TRIM_CALLS = 5 };

#define TRIM STR("trim") /* key of the trim jobs */

/* --- in a helper thread --- */

/* Returns the board slot of the n-th thread. The loop has the first slot. */
static _Atomic uint64_t *board_slot(const struct call_env *env, unsigned n)
{
    return env->board && n < BOARD_WORKS_MAX ? &env->board->slots[env->slot].works[n] : NULL;
}

/* Makes the tools of a helper thread: encoder, scratch, a slot on the board. */
static void *tools_new(void *ctx)
{
    struct call_env *env = ctx;
    struct work_tools *tools = mem_zalloc(sizeof(*tools));

    tools->board = env->board;
    tools->note = board_slot(env, 1 + atomic_fetch_add(&env->n_tools, 1));
    tools->scratch = model_scratch_new(env->model);
    model_scratch_count(tools->scratch, &env->request_bytes);
    model_scratch_remember(tools->scratch);
    tools->encoder = encoder_new(model_tokenizer(env->model));
    return tools;
}

/* Frees the tools when the thread ends. */
static void tools_free(void *p)
{
    struct work_tools *tools = p;

    model_scratch_free(tools->scratch);
    encoder_free(tools->encoder);
    free(tools);
}

/* Hashes a part of a body. Uses str_hash128, which has four lanes and is several times as fast as
 * str_hash on long texts. */
static uint64_t hash_bytes(struct str part, const struct hash128 *known, uint64_t seed,
                           uint64_t both[2])
{
    struct hash128 h;

    hash128_begin(&h);
    if (known && known->bytes < part.len)
        h = *known;
    hash128_end(&h, part, both);
    return str_hash(str_of((const char *)both, 2 * sizeof(*both)), seed);
}

/* Hashes a body: up to 4 MiB the whole body, otherwise its length, beginning and end. Returns 0 if
 * there is no board. */
static uint64_t hash_body(const struct board *board, struct str body, const struct hash128 *known,
                          uint64_t whole[2])
{
    uint64_t head, end[2];

    whole[0] = whole[1] = 0;
    if (!board)
        return 0;
    head =
        hash_bytes(str_sub(body, 0, WORK_HASHED_BYTES), known, board->hash_seed ^ body.len, whole);
    if (body.len <= WORK_HASHED_BYTES)
        return head | 1;
    whole[0] = whole[1] = 0;
    return hash_bytes(
               str_sub(body, MAX_OF(body.len - WORK_HASHED_BYTES, WORK_HASHED_BYTES), body.len),
               NULL, head, end) |
           1;
}

int work_note(const struct work_tools *tools, uint64_t body_hash, struct err *e)
{
    if (!tools->board || body_hash == 0)
        return 0;
    if (board_is_quarantined(tools->board, body_hash, clock_ms()))
        return err_set(
            e, ERR_INTERNAL,
            "workers died at this very request before: it is not tried again for an hour");
    if (tools->note)
        atomic_store_explicit(tools->note, body_hash, memory_order_relaxed);
    return 0;
}

int work_note_bytes(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                    struct err *e)
{
    return work_note_body(ret_hash, tools, body, NULL, NULL, e);
}

int work_note_body(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                   const struct hash128 *known, uint64_t whole[2], struct err *e)
{
    uint64_t own[2], hash = hash_body(tools->board, body, known, whole ? whole : own);

    atomic_store_explicit(ret_hash, hash, memory_order_relaxed);
    return work_note(tools, hash, e);
}

void work_report_hung(uint64_t body_hash, struct err *ret)
{
    log_error(NULL, "a request's work does not end, its thread is given up",
              LOG_U("body_hash", body_hash));
    (void)err_set(ret, ERR_INTERNAL, "the request took too long to prepare and was given up");
}

/* --- memory --- */

/* Returns free heap memory to the system: memory that requests have freed lies between blocks in
 * use. The call takes a while, and locks the heap meanwhile. */
static void run_trim(struct helper_job *j, void *tool)
{
    (void)j;
    (void)tool;
    (void)malloc_trim(0);
}

static void on_trimmed(struct helper_job *j, enum helper_end end)
{
    (void)j;
    (void)end;
}

void call_memory_held(struct call_env *env, uint64_t request_bytes)
{
    struct session_totals t;
    uint64_t bytes;

    session_store_totals(env->store, &t);
    bytes = request_bytes + t.bytes;
    env->most_bytes = MAX_OF(env->most_bytes, bytes);
    env->low_calls = env->most_bytes - bytes < TRIM_LEAST ? 0 : env->low_calls + 1;
    if (!env->helpers || env->low_calls < TRIM_CALLS || helpers_busy(env->helpers, TRIM))
        return;
    env->low_calls = 0;
    env->most_bytes = bytes;
    if (!env->trim)
        env->trim = mem_zalloc(sizeof(*env->trim));
    env->trim->run = run_trim;
    env->trim->done = on_trimmed;
    env->trim->is_long = true;
    helpers_push(env->helpers, env->trim, TRIM);
}

/* --- starting and ending the threads --- */

/* Without threads all work is done on the loop. At least two threads are made, because long work
 * must leave one free for short work. */
int call_helpers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                       void (*on_lost)(void *env, unsigned n), struct err *e)
{
    struct helpers_options o = {
        .threads = MAX_OF(threads, 2u),
        .limit_ms = limit_ms,
        .tool_new = tools_new,
        .tool_free = tools_free,
        .ctx = env,
        .on_lost = on_lost,
        .nice = NICE,
    };

    if (threads > 0 && helpers_new(env->loop, &o, &env->helpers, e))
        return -1;
    call_tasks_use_helpers(env, &(struct work_tools){env->scratch, env->encoder, env->board,
                                                     board_slot(env, 0), NULL});
    return 0;
}

/* Makes no tools: fetching threads mostly wait, and need only the memory into which they fetch. */
static void *no_tools(void *ctx)
{
    (void)ctx;
    return mem_zalloc(sizeof(struct work_tools));
}

static void no_tools_free(void *p)
{
    struct work_tools *tools = p;

    tls_context_free(tools->tls);
    free(tools);
}

int call_fetchers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                        void (*on_lost)(void *env, unsigned n), struct err *e)
{
    struct helpers_options o = {
        .threads = threads,
        .limit_ms = limit_ms,
        .tool_new = no_tools,
        .tool_free = no_tools_free,
        .ctx = env,
        .on_lost = on_lost,
        .nice = NICE,
    };

    return helpers_new(env->loop, &o, &env->fetchers, e);
}

void call_fetchers_limit(struct call_env *env, uint64_t limit_ms)
{
    if (env->fetchers)
        helpers_lengthen(env->fetchers, limit_ms);
}

/* Returns how many threads did not end. */
unsigned call_helpers_end(struct call_env *env)
{
    unsigned lost = helpers_free(env->helpers) + helpers_free(env->fetchers);
    env->helpers = env->fetchers = NULL;
    call_free_later_end(env, lost > 0);
    if (lost > 0)
        return lost;
    free(env->trim);
    env->trim = NULL;
    return 0;
}
