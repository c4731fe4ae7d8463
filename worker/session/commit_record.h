/*
 * struct commit_record: the one decoder of a commit record (drawn in commit.h), and of answers that
 * stand in records before theirs. Everything borrows
 * the record's bytes and nothing is allocated, so that applying it, summing it up and copying its
 * bulk out read the same thing. It holds the record to its form: every length fits, nothing is
 * behind its end. Whether it makes sense in its session is apply.c's to say.
 */
#ifndef RG_SESSION_COMMIT_RECORD_H
#define RG_SESSION_COMMIT_RECORD_H

#include "common/base/err.h"
#include "worker/request/token_rows.h"
#include "worker/session/commit.h"
#include "worker/session/record.h"

struct commit_answer {
    const char *ids; /* n of them, unaligned */
    uint32_t n;
    bool has_logprobs;
    const char *logprobs; /* n floats, unaligned */
    uint32_t n_versions;
    struct record_in versions; /* text, start, end each: record_str, record_u32 twice */
    bool cut;
    struct str finish_reason, message, response_id, parse_warning;
    struct token_rows rows[ROWS_KINDS]; /* the indexer's with COMMIT_INDEXER */
    uint64_t queue_us, engine_us, gateway_us;
    enum commit_duplicate mode;
    uint32_t duplicate; /* a checkpoint's id, with a mode */
    struct str basis;   /* COMMIT_BASIS */
    uint32_t scored_tokens;
    uint64_t cached;             /* + 1; 0: not told */
    struct str odds;             /* COMMIT_ODDS; absent: none */
    uint32_t drifted;            /* COMMIT_DRIFT */
    struct str asked;            /* COMMIT_ASKED; absent: no basis was */
    uint64_t ahead[BLOCK_KINDS]; /* COMMIT_BLOCKS_AHEAD: bytes of each that stands in records before
                                    this one (blocks_ahead.c); 0: it does not */
};

struct commit_record {
    uint64_t call;
    uint64_t body_hash[2];
    int64_t max_tokens;
    float temperature;
    unsigned flags; /* COMMIT_... */
    uint32_t prompt_tokens;
    struct str key; /* absent without COMMIT_KEY */
    uint32_t chain; /* UINT32_MAX without COMMIT_CHAIN */
    uint32_t kept;  /* COMMIT_EXHAUSTED with COMMIT_KEPT; nothing below is there then */

    struct str tools, kwargs;  /* JSON or absent: COMMIT_NEW_ENV */
    struct str pool;           /* absent without COMMIT_POOL */
    uint32_t env;              /* else */
    uint32_t base;             /* COMMIT_BASE */
    uint32_t n_messages;       /* 0 with COMMIT_RAW */
    struct record_in messages; /* JSON each: record_str; none with COMMIT_AHEAD (texts_ahead.c) */

    uint32_t parent; /* COMMIT_PARENT */
    uint32_t trim, close;
    uint64_t sent;        /* COMMIT_SENT, else 0 */
    uint32_t run, common; /* COMMIT_RUN, else 0 */
    const char *context;  /* n_context ids, unaligned */
    uint32_t n_context;

    struct str bulk; /* COMMIT_BULK_AHEAD, once it is attached: borrowed. Until then there are no
                        ids, floats, blocks and odds, but their lengths */

    uint64_t cause;
    uint32_t diff_message;
    struct str diff_field, diff_stored, diff_request, label, parent_label;
    struct str dropped_fields; /* COMMIT_DROPPED */

    uint32_t n_answers;        /* 1 .. */
    uint32_t n_here;           /* of them in this record: all; none with COMMIT_ANSWERS_AHEAD */
    uint32_t before;           /* RECORD_ANSWERS: those in records before */
    struct record_in answers;  /* n_here of them: commit_record_answer */
    bool has_only;             /* of one, whose bulk is in this record, */
    struct commit_answer only; /* what was read is kept, */
    const char *only_end;      /* and where it ends */
    uint64_t asked;            /* 0 without COMMIT_TOLD */
    struct str asked_text;     /* asked == 1 */
    struct record_in told;     /* COMMIT_TOLD: what each answer here told, record_str */

    uint64_t tokens; /* context and answers */
};

/* Reads the body of a commit record (behind its head) to its end. -1: ERR_IO, it has
 * another form. */
int commit_record_read(struct record_in *r, struct commit_record *ret, struct err *e);

/* The same of RECORD_ANSWERS: call, flags, before, the answers and what they told, and their
 * tokens; all else is empty. */
int commit_record_read_answers(struct record_in *r, struct commit_record *ret, struct err *e);

/* Gives a record with COMMIT_BULK_AHEAD, which was read, the bytes that it lacks. False: they are
 * not so many. */
bool commit_record_attach(struct commit_record *c, struct str bulk);

/* Of a commit's body only what every commit has, up to its key; a torn one sets r->bad. */
void commit_record_read_head(struct record_in *r, struct commit_record *c);

/* Goes over the answers that stand in a record that was read. */
struct answer_cursor {
    struct record_in in;
    size_t bulk_at; /* where the next one's bulk begins */
};

struct answer_cursor commit_record_answers(const struct commit_record *c);
void commit_record_answer(const struct commit_record *c, struct answer_cursor *at,
                          struct commit_answer *ret);

/* The bulk of the call in the layout of its payload (payload.h): how many bytes, and where they are
 * put, unless `to` is NULL. */
size_t commit_record_bulk(const struct commit_record *c, char *to);

/* A part of a payload begins at a multiple of 4 bytes. */
static inline size_t payload_padded(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

#endif
