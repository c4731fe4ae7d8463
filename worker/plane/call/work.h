/*
 * Work of a request whose size its client chooses (parsing the body, rendering, encoding,
 * grammars), for task_offload. Short work is done on the loop. Long work is done in a helper
 * thread, in order within its session, so that others do not wait for it.
 *
 * The work's function may use: data of the work's owner that nobody else changes meanwhile, the
 * model, stored messages of a session that is held (they never change), and its tools. It may not
 * use: anything else of a session, the engines, the log, metrics, or the exchange (except the
 * request, while that is held).
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

/* Tools of one thread for rendering and encoding. */
struct work_tools {
    struct model_scratch *scratch; /* first, for tasks that see nothing else (export_pauses.c) */
    struct encoder *encoder;
    const struct board *board; /* the board, or NULL */
    /* the thread's slot on the board, for the body that it works on; or NULL */
    _Atomic uint64_t *note;
    struct tls_context *tls; /* TLS context of a fetching thread, NULL until needed */
};

/* Work that is done on the loop: bytes of text to render and encode, and bytes of JSON to parse,
 * each about a millisecond. JSON that may be known already is compared on the loop up to the third
 * size, in a tenth of that time. */
enum { WORK_TEXT_MAX = 24 << 10, WORK_JSON_MAX = 192 << 10, WORK_KNOWN_MAX = 1 << 20 };

/* Work on more bytes than these is long (task_work.is_long). */
enum { WORK_TEXT_LONG = 4 * WORK_TEXT_MAX, WORK_JSON_LONG = 4 * WORK_JSON_MAX };

/* Logs that the thread of a request hangs, and makes the error for its client. */
void work_report_hung(uint64_t body_hash, struct err *ret);

enum { WORK_HASHED_BYTES = 2 << 20 }; /* bytes that are hashed at each end of a long body */

/* Notes on the board which body is worked on. The work's function calls this first, so that the
 * supervisor knows the request if the process dies of it. The note ends with the work. Returns -1
 * with ERR_INTERNAL if processes have died of this body before (struct board's quarantine). */
int work_note(const struct work_tools *tools, uint64_t body_hash, struct err *e);

/* Like work_note for a body, whose hash it computes and stores. Up to 4 MiB the whole body is
 * hashed, otherwise its length, beginning and end. The hash uses the board's seed, so that no
 * client can make a body with the hash of a different one. `whole`, if not NULL, becomes the body's
 * str_hash128 if that was computed on the way, otherwise 0, 0. `known` is the hash of the body's
 * beginning, or NULL. */
int work_note_body(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                   const struct hash128 *known, uint64_t whole[2], struct err *e);

/* Like work_note_body, without the other hashes. */
int work_note_bytes(_Atomic uint64_t *ret_hash, const struct work_tools *tools, struct str body,
                    struct err *e);

#endif
