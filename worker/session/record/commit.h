/*
 * The record of a committed call, which commit.c writes and commit_record.c reads in the order
 * shown here (LEB128 integers unless said otherwise):
 *
 *     type version session-id now-ms(8)                      every record
 *     call body-hash(8 8) max-tokens temperature(4) flags prompt-tokens
 *     idempotency key                                        when COMMIT_KEY
 *     calls recorded before                                  when COMMIT_AFTER; else unknown
 *     COMMIT_EXHAUSTED:   chain                              when COMMIT_CHAIN
 *                         ids that stay of it                when COMMIT_KEPT; nothing else
 *     not COMMIT_RAW:     tools kwargs | env                 COMMIT_NEW_ENV | else
 *                         pool of engines                    when COMMIT_POOL, of a new environment
 *                         base node                          when COMMIT_BASE; else the env's root
 *                         n                                  new messages, added below it
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
 *                                                            COMMIT_ROWS: may be absent
 *       queue  engine  gateway                               microseconds
 *       duplicate-mode  duplicate-checkpoint
 *       logprob-basis  scored-tokens  cached-tokens          + 1, 0: unknown
 *       odds block (*)                                       when COMMIT_ODDS; may be absent
 *       drifted-tokens                                       when COMMIT_DRIFT; 0: none
 *       indexer block, as that of experts                    when COMMIT_INDEXER; may be absent
 *       asked-basis                                          when COMMIT_ASKED; may be absent
 *       told                                                 COMMIT_BULK: its length in BULK_TOLD
 *     asked: 0 absent | 1 text | 2 + the call with the same  the text is without instructions when
 *                                                            COMMIT_ASKED_BRIEF
 *
 *     (*)   COMMIT_BULK: only lengths. The bytes are in a piece of the call's bulk (call_bulk.h),
 *           in this order, each at a multiple of 4; the context's in piece BULK_PAYLOADS.
 *     (**)  COMMIT_BULK: 1, offset and length in BULK_TEXTS, or 0 and JSON
 *
 * The other records, each after the head (the first line above):
 *
 *     RECORD_CREATE     options (JSON), the fingerprint of the model: tokenizer(8) special(8)
 *                       template(8)
 *     RECORD_REWARD     response-id (absent: the session's own reward), reward (JSON)
 *     RECORD_END        how flags reason head reward (as in RECORD_REWARD; may be absent)
 *     RECORD_SCORE      what engine top-k checkpoint n, n floats, ids of the alternatives
 *                       (n x top-k), as many floats
 *     RECORD_DROP       call, checkpoint; linear: a retry discards the newest checkpoint
 *     RECORD_EXPORTED   nothing; the client has received the whole closing export
 *     RECORD_BUDGET     name of the option, when it refuses a call for the first time
 *     RECORD_FORK       id of the session from which the records before were copied, the checkpoint
 *                       that the fork continues, whether the copied answers are trained here
 *     RECORD_IMPORT     nothing; the records before are a snapshot's
 *     RECORD_BULK       call, bytes of its fragments before (0: those before are void), piece, then
 *                       bytes to the end; a fragment of the long values of a call, before its
 *                       commit
 *     RECORD_ROWS       as RECORD_BULK, of a piece that is a block of rows. The second copy in a
 *                       fleet's store lacks it (--fleet-rows off)
 *     RECORD_LOGPROBS   weight version checkpoint n, n floats (NaN: none) of a trainer, for an
 *                       answer
 *     RECORD_DELIVERED  briefs of calls (delivery.h) to the end; their answers have arrived. Older
 *                       nodes read the first. Only in a fleet
 *     RECORD_DOUBT      times (8 8) between which records may be missing: a node was lost together
 *                       with the newest records of the fleet's store
 *     RECORD_SINK       state, options; an export must be delivered to the sinks, or is in their
 *                       spool
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
    RECORD_SCORE = RECORD_EXPORTED + 2, /* the number between them is not in use */
    RECORD_BUDGET,
    RECORD_FORK,
    RECORD_IMPORT,
    RECORD_BULK,
    RECORD_LOGPROBS,
    RECORD_DELIVERED,
    RECORD_ROWS,
    RECORD_DOUBT
};

/* Reports whether records of the type are fragments of a call. */
static inline bool record_is_fragment(uint64_t type)
{
    return type == RECORD_BULK || type == RECORD_ROWS;
}

/* The newest and the oldest version that can be read: 10 has no RECORD_DOUBT, 9 has no
 * COMMIT_AFTER. RECORD_DOUBT is written as the newest, all else as usual: so older nodes of a fleet
 * can take the places of newer ones, except those in doubt. */
enum { RECORD_VERSION = 11, RECORD_VERSION_USUAL = 10, RECORD_VERSION_OLDEST = 9 };

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
    COMMIT_BULK = 256, /* long values are in fragments before this record */
    COMMIT_TEXT = 512, /* the answers have no ids */
    COMMIT_KEY = 1024,
    COMMIT_KEPT = 2048, /* the chain that is closed loses its last answer */
    COMMIT_SENT = 4096,
    COMMIT_TEXTS = 8192,    /* the new messages are in the fragments, too; only with COMMIT_BULK */
    COMMIT_DROPPED = 16384, /* the request had fields that were dropped */
    COMMIT_ODDS = 32768,    /* the odds of some answer are kept */
    /* the engine made different tokens of the images of some answer's prompt */
    COMMIT_DRIFT = 65536,
    COMMIT_POOL = 131072,    /* the new environment is that of a pool other than the policy's */
    COMMIT_INDEXER = 262144, /* the indexer's top-k of some answer is kept */
    COMMIT_ASKED = 524288,   /* some answer's engine was asked for a basis of its logprobs */
    COMMIT_AFTER = 1048576,  /* calls of the session were recorded before */
    /* the instructions in `asked` have no text of their own, because they are the text of the
     * conversation's first message */
    COMMIT_ASKED_BRIEF = 8388608,
    COMMIT_ROWS = 16777216, /* the pieces of rows are RECORD_ROWS, and may be absent */
    /* all of these flags */
    COMMIT_KNOWN = 2 * COMMIT_AFTER - 1 + COMMIT_ASKED_BRIEF + COMMIT_ROWS
};

/* How an answer is recorded whose text the node already has (idempotent_retry). */
enum commit_duplicate {
    DUPLICATE_NONE,    /* as a checkpoint of its own */
    DUPLICATE_REPLACE, /* the new checkpoint replaces the earlier one, which no other continues */
    /* the earlier checkpoint stays because others continue it; this one is hidden */
    DUPLICATE_KEEP,
};

/* Writes the part with which every record starts. */
void record_begin(struct buf *b, enum record_type type, struct str id, uint64_t now_ms);

#endif
