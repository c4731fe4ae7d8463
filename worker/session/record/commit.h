/*
 * The record of a committed call, as commit.c writes it and commit_record.c reads it (both hold to
 * the order drawn here; LEB128 integers unless said otherwise):
 *
 *     type version session-id now-ms(8)                      every record
 *     call body-hash(8 8) max-tokens temperature(4) flags prompt-tokens
 *     idempotency key                                        when COMMIT_KEY
 *     calls recorded before                                  when COMMIT_AFTER; else not told
 *     COMMIT_EXHAUSTED:   chain                              when COMMIT_CHAIN
 *                         ids that stay of it                when COMMIT_KEPT; nothing else
 *     not COMMIT_RAW:     tools kwargs | env                 COMMIT_NEW_ENV | else
 *                         pool of engines                    when COMMIT_POOL, of a new environment
 *                         base node                          when COMMIT_BASE; else the env's root
 *                         n                                  new messages, hung below it
 *                         n messages (JSON)                  COMMIT_TEXTS: offset in BULK_TEXTS
 *     parent checkpoint                                      when COMMIT_PARENT
 *     chain                                                  when COMMIT_CHAIN
 *     trim close
 *     hash (8) of the ids that were sent                     when COMMIT_SENT
 *     run checkpoint, common                                 when COMMIT_RUN: context starts as its
 *     context ids (*)                                        the rest
 *     cause diff-message diff-field diff-stored diff-request label parent-label
 *     names of dropped fields (JSON)                         when COMMIT_DROPPED
 *     n answers, each:
 *       piece                                                when COMMIT_BULK: of (*)
 *       ids (*)                                              none when COMMIT_TEXT
 *       logprobs (*)                                         float32 run, may be absent
 *       n versions, each: text start end                     weights, by token
 *       cut  finish  message (**)  response-id  parse-warning
 *       experts block (*)  piece  from  rows  layers  topk   piece: when COMMIT_BULK; 0: as (*)
 *       queue  engine  gateway                               microseconds
 *       duplicate-mode  duplicate-checkpoint
 *       logprob-basis  scored-tokens  cached-tokens          + 1, 0: not told
 *       odds block (*)                                       when COMMIT_ODDS; may be absent
 *       drifted-tokens                                       when COMMIT_DRIFT; 0: none
 *       indexer block, as that of experts                    when COMMIT_INDEXER; may be absent
 *       asked-basis                                          when COMMIT_ASKED; may be absent
 *       told                                                 COMMIT_BULK: its length in BULK_TOLD
 *     asked: 0 absent | 1 text | 2 + the call with the same  the text is without instructions when
 *                                                            COMMIT_ASKED_BRIEF
 *
 *     (*)   COMMIT_BULK: lengths alone. The bytes are in a piece of the call's bulk (call_bulk.h),
 * in this order, each at a multiple of 4; the context's in piece BULK_PAYLOADS.
 *     (**)  COMMIT_BULK: 1, offset and length in BULK_TEXTS, or 0 and JSON
 *
 * RECORD_CREATE, behind the head: options (JSON), the fingerprint of the model: tokenizer(8)
 * special(8) template(8).
 * RECORD_REWARD, behind the head: response-id (absent: the session's own reward), reward (JSON).
 * RECORD_END, behind the head: how flags reason head reward (as there; may be absent).
 * RECORD_ORIGIN (a session without a fingerprint was adopted), behind the head: a fingerprint.
 * RECORD_SCORE, behind the head: what engine top-k checkpoint n, n floats, ids of the alternatives
 * (n x top-k), as many floats.
 * RECORD_DROP (linear: a retry discards the newest checkpoint), behind the head: call, checkpoint.
 * RECORD_EXPORTED (the closing export has reached its client whole), behind the head: nothing.
 * RECORD_BUDGET (a call was refused for it first), behind the head: the option's name.
 * RECORD_FORK (what came before was copied from another session), behind the head: that session's
 * id, the checkpoint that the fork goes on from, whether what was copied is trained here.
 * RECORD_IMPORT (what came before was a snapshot's), behind the head: nothing.
 * RECORD_BULK (a fragment of the long bytes of a call, before its commit), behind the head: call,
 * bytes of its fragments before (0: those before are void), piece, then bytes to the end.
 * RECORD_LOGPROBS (a trainer's, of an answer), behind the head: weight version checkpoint n, n
 * floats; NaN: none.
 * RECORD_SINK (an export is owed to the sinks, or is in their spool), behind the head: state,
 * options.
 */
#ifndef RG_SESSION_COMMIT_H
#define RG_SESSION_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

enum record_type {
    RECORD_CREATE = 1,
    RECORD_COMMIT,
    RECORD_REWARD,
    RECORD_END,
    RECORD_DROP,
    RECORD_SINK,
    RECORD_EXPORTED,
    RECORD_ORIGIN,
    RECORD_SCORE,
    RECORD_BUDGET,
    RECORD_FORK,
    RECORD_IMPORT,
    RECORD_BULK,
    RECORD_LOGPROBS
};

/* The version that is written, and the oldest that is read: 9 has no COMMIT_AFTER. */
enum { RECORD_VERSION = 10, RECORD_VERSION_OLDEST = 9 };

static inline bool record_version_known(uint64_t version)
{
    return version >= RECORD_VERSION_OLDEST && version <= RECORD_VERSION;
}

enum {
    COMMIT_RAW = 1,
    COMMIT_ROLLBACK = 2,
    COMMIT_EXHAUSTED = 4,
    COMMIT_PARENT = 8,
    COMMIT_CHAIN = 16,
    COMMIT_NEW_ENV = 32,
    COMMIT_BASE = 64,
    COMMIT_RUN = 128,
    COMMIT_BULK = 256, /* long bytes are in fragments before this record */
    COMMIT_TEXT = 512, /* the answers have no ids */
    COMMIT_KEY = 1024,
    COMMIT_KEPT = 2048, /* the chain that is closed loses its last answer */
    COMMIT_SENT = 4096,
    COMMIT_TEXTS = 8192,    /* the new messages are there, too; only with COMMIT_BULK */
    COMMIT_DROPPED = 16384, /* the request had fields that were dropped */
    COMMIT_ODDS = 32768,    /* the odds of some answer are kept */
    COMMIT_DRIFT = 65536,   /* the engine made other tokens of the images of some answer's prompt */
    COMMIT_POOL = 131072,   /* the new environment is another pool's than the policy's */
    COMMIT_INDEXER = 262144,      /* the indexer's top-k is kept of some answer */
    COMMIT_ASKED = 524288,        /* some answer's engine was asked for a basis of its logprobs */
    COMMIT_AFTER = 1048576,       /* other calls of the session are recorded */
    COMMIT_ASKED_BRIEF = 8388608, /* instructions that were asked are in no text of their own, but
                                    are that of the conversation's first message */
    COMMIT_KNOWN = 2 * COMMIT_AFTER - 1 + COMMIT_ASKED_BRIEF /* all of these */
};

/* What becomes of an answer whose text the node already holds (idempotent_retry). */
enum commit_duplicate {
    DUPLICATE_NONE,    /* a checkpoint of its own */
    DUPLICATE_REPLACE, /* it takes the other's place, nothing was built on that one */
    DUPLICATE_KEEP,    /* others were built on that one: it stays, this one is only on record */
};

/* The part that every record starts with. */
void record_begin(struct buf *b, enum record_type type, struct str id, uint64_t now_ms);

#endif
