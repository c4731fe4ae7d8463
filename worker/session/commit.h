/*
 * The record of a committed call, as commit.c writes it and commit_record.c reads it (both hold to
 * the order drawn here; LEB128 integers unless said otherwise):
 *
 *     type version session-id now-ms(8)                      every record
 *     call body-hash(8 8) max-tokens temperature(4) flags prompt-tokens
 *     idempotency key                                        when COMMIT_KEY
 *     COMMIT_EXHAUSTED:   chain                              when COMMIT_CHAIN
 *                         ids that stay of it                when COMMIT_KEPT; nothing else
 *     (COMMIT_BULK_AHEAD: of runs of ids and floats, of blocks of rows and of odds their lengths
 *     alone stand here, and the bytes, as a payload has them, in RECORD_BLOCKS)
 *     not COMMIT_RAW:     tools kwargs | env                 COMMIT_NEW_ENV | else
 *                         pool of engines                    when COMMIT_POOL, of a new environment
 *                         base node                          when COMMIT_BASE; else the env's root
 *                         n                                  new messages, hung below it
 *                         n messages (JSON)                  unless COMMIT_AHEAD (RECORD_TEXTS)
 *     parent checkpoint                                      when COMMIT_PARENT
 *     chain                                                  when COMMIT_CHAIN
 *     trim close
 *     hash (8) of the ids that were sent                     when COMMIT_SENT
 *     run checkpoint, common                                 when COMMIT_RUN: context starts as its
 *     context ids                                            the rest
 *     cause diff-message diff-field diff-stored diff-request label parent-label
 *     names of dropped fields (JSON)                         when COMMIT_DROPPED
 *     n answers, each:                                       COMMIT_ANSWERS_AHEAD: n, then how many
 *                                                            ids all have (RECORD_ANSWERS)
 *       ids                                                  none when COMMIT_TEXT
 *       logprobs                                             float32 run, may be absent
 *       n versions, each: text start end                     weights, by token
 *       cut  finish  message (JSON)  response-id  parse-warning
 *       experts block  from  rows  layers  topk
 *       queue  engine  gateway                               microseconds
 *       duplicate-mode  duplicate-checkpoint
 *       logprob-basis  scored-tokens  cached-tokens          when COMMIT_BASIS; + 1, 0: not told
 *       odds block                                           when COMMIT_ODDS; may be absent
 *       drifted-tokens                                       when COMMIT_DRIFT; 0: none
 *       indexer block  from  rows  layers  topk              when COMMIT_INDEXER; may be absent
 *       asked-basis                                          when COMMIT_ASKED; may be absent
 *       bytes of experts, indexer, told                      when COMMIT_BLOCKS_AHEAD: of those
 *                                                            in RECORD_BLOCKS, 0: it is here
 *       bytes of message                                     when COMMIT_MESSAGE_AHEAD; likewise
 *     asked: 0 absent | 1 text | 2 + the call with the same  when COMMIT_TOLD; the text is without
 *                                                            instructions when COMMIT_ASKED_BRIEF
 *     what each answer told                                  when COMMIT_TOLD; as the answers
 *
 * RECORD_CREATE, behind the head: options (JSON); from version 7 on metadata, as members; from
 * version 2 on the fingerprint of the model: tokenizer(8) special(8) template(8).
 * RECORD_REWARD, behind the head: response-id (absent: the session's own reward), reward (JSON,
 * from version 7 on members).
 * RECORD_END, behind the head: how flags reason head reward (as there; may be absent).
 * RECORD_ORIGIN (a session of version 1 was adopted), behind the head: a fingerprint.
 * RECORD_SCORE, behind the head: what engine top-k checkpoint n, n floats, ids of the alternatives
 * (n x top-k), as many floats.
 * RECORD_DROP (linear: a retry discards the newest checkpoint), behind the head: call, checkpoint.
 * RECORD_EXPORTED (the closing export has reached its client whole), behind the head: nothing.
 * RECORD_BUDGET (a call was refused for it first), behind the head: the option's name.
 * RECORD_FORK (what came before was copied from another session), behind the head: that session's
 * id, the checkpoint that the fork goes on from, whether what was copied is trained here.
 * RECORD_IMPORT (what came before was a snapshot's), behind the head: nothing.
 * RECORD_TEXTS (long new messages of a call, in parts, before its commit), behind the head: call,
 * bytes before, then bytes to the end: the parts in one are messages as a commit has them, the last
 * n of which its commit names.
 * RECORD_ANSWERS (some of the answers of a call with large ones, before its commit), behind the
 * head: call, how many of its answers came before, flags (those of COMMIT_ANSWER_PARTS that the
 * commit has), n answers as a commit has them, what each told when COMMIT_TOLD.
 * RECORD_BLOCKS (a part of a long block of an answer, before the record that has the answer),
 * behind the head: call, bytes of all its parts before, answer, which block (enum block_kind), then
 * bytes to the end. A call's blocks stand in the order of its answers, each answer's in that of the
 * enum. The bulk of a commit, or of RECORD_ANSWERS, stands in such records (BLOCK_BULK) between the
 * blocks and it; its answer is how many of them the records before have. Those of a message
 * (BLOCK_MESSAGE) are its JSON.
 * RECORD_SINK (an export is owed to the sinks, or is in their spool), behind the head: state,
 * options.
 */
#ifndef RG_SESSION_COMMIT_H
#define RG_SESSION_COMMIT_H

#include "common/base/buf.h"
#include "common/base/str.h"
#include "worker/request/token_rows.h"

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
    RECORD_TEXTS,
    RECORD_ANSWERS,
    RECORD_BLOCKS
};

/* Version 2: RECORD_CREATE ends with the model's fingerprint. Version 3: RECORD_TEXTS,
 * RECORD_ANSWERS, and commits with COMMIT_AHEAD or COMMIT_ANSWERS_AHEAD; all others are still
 * written as version 2, so that an older program reads the sessions that have none of them, and
 * says that it cannot read the others. Version 4: RECORD_BLOCKS, and what has COMMIT_BLOCKS_AHEAD.
 * Version 5: commits with COMMIT_ASKED_BRIEF. Version 6: BLOCK_BULK, and what has
 * COMMIT_BULK_AHEAD. Version 7, which is no longer written: metadata and rewards with long values
 * are members (member_record.h): behind the options, which have none then, and in the place of the
 * reward.
 * Version 8: BLOCK_MESSAGE, and what has COMMIT_MESSAGE_AHEAD.
 */
enum {
    RECORD_VERSION = 8,
    RECORD_VERSION_MESSAGE = 8,
    RECORD_VERSION_MEMBERS = 7,
    RECORD_VERSION_BULK = 6,
    RECORD_VERSION_BRIEF = 5,
    RECORD_VERSION_BLOCKS = 4,
    RECORD_VERSION_USUAL = 2,
    RECORD_VERSION_AHEAD = 3,
    RECORD_VERSION_MAX = 100
};

enum {
    COMMIT_RAW = 1,
    COMMIT_ROLLBACK = 2,
    COMMIT_EXHAUSTED = 4,
    COMMIT_PARENT = 8,
    COMMIT_CHAIN = 16,
    COMMIT_NEW_ENV = 32,
    COMMIT_BASE = 64,
    COMMIT_RUN = 128,
    COMMIT_TOLD = 256,
    COMMIT_TEXT = 512, /* the answers have no ids */
    COMMIT_KEY = 1024,
    COMMIT_KEPT = 2048, /* the chain that is closed loses its last answer */
    COMMIT_SENT = 4096,
    COMMIT_BASIS = 8192,    /* what the engine told of each answer's logprobs, and of its cache */
    COMMIT_DROPPED = 16384, /* the request had fields that were dropped */
    COMMIT_ODDS = 32768,    /* what else could have been sampled is kept of some answer */
    COMMIT_DRIFT = 65536,   /* the engine made other tokens of the images of some answer's prompt */
    COMMIT_POOL = 131072,   /* the new environment is another pool's than the policy's */
    COMMIT_INDEXER = 262144,        /* the indexer's top-k is kept of some answer */
    COMMIT_ASKED = 524288,          /* some answer's engine was asked for a basis of its logprobs */
    COMMIT_AHEAD = 1048576,         /* the new messages stand in records before this one */
    COMMIT_ANSWERS_AHEAD = 2097152, /* so do all answers and what they told */
    COMMIT_BLOCKS_AHEAD = 4194304,  /* so do long blocks of some answer */
    COMMIT_ASKED_BRIEF = 8388608,   /* instructions that were asked stand in no text of their own,
                                       but are that of the conversation's first message */
    COMMIT_BULK_AHEAD = 16777216,   /* the record's whole bulk stands in records before it */
    COMMIT_MESSAGE_AHEAD = 33554432, /* the message of some answer does; beside
                                        COMMIT_BLOCKS_AHEAD */

    /* what is told of each answer: all records of a call that have answers agree on it */
    COMMIT_ANSWER_PARTS = COMMIT_TOLD | COMMIT_TEXT | COMMIT_BASIS | COMMIT_ODDS | COMMIT_DRIFT |
                          COMMIT_INDEXER | COMMIT_ASKED,
    /* where a record's answers have their bytes */
    COMMIT_ANSWER_PLACES = COMMIT_BLOCKS_AHEAD | COMMIT_BULK_AHEAD | COMMIT_MESSAGE_AHEAD
};

/* What of an answer may stand in records before it, if it is long. */
enum block_kind {
    BLOCK_EXPERTS = ROWS_EXPERTS,
    BLOCK_INDEXER = ROWS_INDEXER,
    BLOCK_TOLD = ROWS_KINDS,
    BLOCK_BULK, /* of no answer, but of the record that has it */
    BLOCK_MESSAGE,
    BLOCK_KINDS
};

/* The flag of records whose answers say how long their blocks of that kind are; 0: none do. */
static inline unsigned block_flag(int kind)
{
    if (kind == BLOCK_BULK)
        return 0;
    return kind == BLOCK_MESSAGE ? COMMIT_MESSAGE_AHEAD : COMMIT_BLOCKS_AHEAD;
}

/* What becomes of an answer whose text the node already holds (idempotent_retry). */
enum commit_duplicate {
    DUPLICATE_NONE,    /* a checkpoint of its own */
    DUPLICATE_REPLACE, /* it takes the other's place, nothing was built on that one */
    DUPLICATE_KEEP,    /* others were built on that one: it stays, this one is only on record */
};

/* The part that every record starts with: of the version that knows its type. */
void record_begin(struct buf *b, enum record_type type, struct str id, uint64_t now_ms);

#endif
