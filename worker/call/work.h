/*
 * struct long_work: the part of a request whose length its client chooses (reading the body,
 * rendering, encoding, grammars), apart from the rest. Short work is done on the spot; long work in
 * a helper thread, in order within its session, so that nobody else waits for it.
 *
 * `run` may touch: what the work's owner has and nobody else changes meanwhile, the model, stored
 * messages of a session that is held (they never change), its tools. Not: anything else of a
 * session, the engines, the log, metrics, the exchange (but for what its request says, while it is
 * held).
 */
#ifndef RG_CALL_WORK_H
#define RG_CALL_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/str.h"

struct board;
struct call_env;
struct encoder;
struct exchange;
struct helpers;
struct model_scratch;
struct task_work;
struct tls_context;
struct work_job;

/* What one thread renders and encodes with. */
struct work_tools {
    struct model_scratch *scratch;
    struct encoder *encoder;
    const struct board *board; /* or NULL */
    _Atomic uint64_t *note;    /* what this thread works at; or NULL */
    struct tls_context *tls;   /* a fetching thread's, NULL until it is needed */
};

struct long_work;

/* 0, or -1 and e. */
typedef int (*work_run_fn)(struct long_work *w, struct work_tools *tools, struct err *e);

/* On the loop, after work that a helper did; e NULL: run returned 0. The work's exchange, if it has
 * one, is neither held nor watched any more. With w->stuck the helper is still at it: nothing that
 * it uses may be freed, by nobody, ever; the exchange was stranded (exchange_strand), and e is
 * still to be answered. */
typedef void (*work_done_fn)(struct long_work *w, const struct err *e);

/* The owner gave it up, or the client left: frees what run used, the work itself as well; the
 * exchange is let go of afterwards. Not called when run is stuck. */
typedef void (*work_drop_fn)(struct long_work *w);

/* As work_drop_fn, but the helper is stuck: nothing that it uses is freed, but who counts on its
 * end may be told. The exchange is stranded afterwards. */
typedef void (*work_lost_fn)(struct long_work *w);

/* Embedded in its owner, zeroed; the owner sets run, done and drop, and lost where it has to.
 *
 * Work that reads the body of an exchange names it in `exchange`, and has no more to do with it:
 * while a helper has the work the exchange is held (exchange_hold), so that its body stays, and
 * watched, so that a client who leaves ends the work as work_drop does. */
struct long_work {
    work_run_fn run;
    work_done_fn done;
    work_drop_fn drop;
    work_lost_fn lost;         /* or NULL */
    struct exchange *exchange; /* whose body run reads; or NULL */
    /* Of the request, for the log when it is stuck; 0: not known. A helper may set it. */
    _Atomic uint64_t body_hash;
    bool is_long; /* by its bytes, it takes a helper several milliseconds: it leaves one
                     to others */
    bool helped;  /* a helper has it, or had it: done was or will be called */
    bool stuck;

    struct work_job *job; /* own, while a helper has it */
    struct call_env *env;
    struct helpers **pool; /* env's that has it */
    struct err err;
    int rc;
    bool dropped;
    struct list_item item; /* of env->dropped_work */
};

enum work_state { WORK_DONE, WORK_FAILED, WORK_HELPED };

/* Bytes of text that are rendered and encoded on the spot, and bytes of JSON that are read so:
 * about a millisecond of either. Of JSON that may be known the loop compares so many, in a tenth of
 * that. */
enum { WORK_TEXT_MAX = 24 << 10, WORK_JSON_MAX = 192 << 10, WORK_KNOWN_MAX = 1 << 20 };

/* Of more of either, work is long (is_long). */
enum { WORK_TEXT_LONG = 4 * WORK_TEXT_MAX, WORK_JSON_LONG = 4 * WORK_JSON_MAX };

/* Does it: at once when it is short (and nothing of its session is in a helper, which it must not
 * overtake): WORK_DONE, or WORK_FAILED and e. Else WORK_HELPED, and done follows. */
enum work_state work_begin(struct call_env *env, struct long_work *w, struct str session_id,
                           bool is_short, struct err *e);

/* Logs that a request's thread hangs, and makes the error for its client. */
void work_report_hung(uint64_t body_hash, struct err *ret);

/* Like task_offload, but ends the note on the board. `fn` gets struct work_tools. */
MAY_PAUSE RG_MUSTCHECK int work_offload(const struct task_work *w, struct err *e);

enum { WORK_HASHED_BYTES = 2 << 20 }; /* at each end of a body */

/* To be called first by `run`: on the board stands what is worked at, for the supervisor to know
 * should the process die of it. -1 and ERR_INTERNAL when processes did before (struct board's
 * quarantine). */
int work_note(const struct work_tools *tools, uint64_t body_hash, struct err *e);

/* As work_note, of a body, whose hash it stores: of all of it up to 4 MiB, else of its length,
 * beginning and end, under the board's seed, so that no client makes a body that passes for
 * another's. Nothing else of it is read. `whole` becomes the body's str_hash128 where that was
 * computed on the way, else 0, 0; or NULL. `known`: of the body's beginning, or NULL. */
int work_note_body(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                   const struct hash128 *known, uint64_t whole[2], struct err *e);

/* Like work_note_body, for a job of task_offload, which calls work_note_end before it returns. */
int work_note_bytes(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                    struct err *e);
void work_note_end(const struct work_tools *tools);

/* Its owner gives it up: drop follows, at once or when the helper has let go. Fine for work that
 * was not begun or is over. */
void work_drop(struct long_work *w);

#endif
