/*
 * The part of a request whose length its client chooses (reading the body, rendering, encoding,
 * grammars): work for task_offload. Short work is done on the spot; long work in a helper thread,
 * in order within its session, so that others do not wait for it.
 *
 * Its function may touch: what the work's owner has and nobody else changes meanwhile, the model,
 * stored messages of a session that is held (they never change), its tools. Not: anything else of a
 * session, the engines, the log, metrics, the exchange (but for what its request says, while it is
 * held).
 */
#ifndef RG_CALL_WORK_H
#define RG_CALL_WORK_H

#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct board;
struct encoder;
struct model_scratch;
struct task_work;
struct tls_context;

/* What one thread renders and encodes with. */
struct work_tools {
    struct model_scratch *scratch;
    struct encoder *encoder;
    const struct board *board; /* or NULL */
    _Atomic uint64_t *note;    /* board slot for what this thread works at; or NULL */
    struct tls_context *tls;   /* a fetching thread's, NULL until it is needed */
};

/* Bytes of text that are rendered and encoded on the spot, and bytes of JSON that are read so:
 * about a millisecond of either. Of JSON that may be known the loop compares so many, in a tenth of
 * that. */
enum { WORK_TEXT_MAX = 24 << 10, WORK_JSON_MAX = 192 << 10, WORK_KNOWN_MAX = 1 << 20 };

/* Work on more than one of these is long (task_work.is_long). */
enum { WORK_TEXT_LONG = 4 * WORK_TEXT_MAX, WORK_JSON_LONG = 4 * WORK_JSON_MAX };

/* Logs that a request's thread hangs, and makes the error for its client. */
void work_report_hung(uint64_t body_hash, struct err *ret);

/* Like task_offload, but ends the note on the board. `fn` gets struct work_tools. */
MAY_PAUSE RG_MUSTCHECK int work_offload(const struct task_work *w, struct err *e);

enum { WORK_HASHED_BYTES = 2 << 20 }; /* at each end of a body */

/* Records on the board what is worked at. The function calls it first, so that the supervisor knows
 * the request if the process dies of it. -1 and ERR_INTERNAL if processes have died of it before
 * (struct board's quarantine). */
int work_note(const struct work_tools *tools, uint64_t body_hash, struct err *e);

/* Like work_note for a body, whose hash it stores. Up to 4 MiB all of the body is hashed, otherwise
 * its length, beginning and end. The board's seed is used, so that no client can make a body with
 * the hash of another's. `whole` becomes the body's str_hash128 if that was computed on the way,
 * otherwise 0, 0; or NULL. `known`: the hash of the body's beginning, or NULL. */
int work_note_body(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                   const struct hash128 *known, uint64_t whole[2], struct err *e);

/* Like work_note_body, for a job of task_offload, which calls work_note_end before it returns. */
int work_note_bytes(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                    struct err *e);
void work_note_end(const struct work_tools *tools);

#endif
