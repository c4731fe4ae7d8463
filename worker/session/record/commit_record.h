/*
 * struct commit_record: the one decoder of a commit record (drawn in commit.h). Everything borrows
 * the record's bytes, and those of its bulk, and nothing is allocated, so that applying it, summing
 * it up and copying its bulk out read the same thing. It holds the record to its form: every length
 * fits, nothing is behind its end. Whether it makes sense in its session is apply.c's to say.
 */
#ifndef RG_SESSION_COMMIT_RECORD_H
#define RG_SESSION_COMMIT_RECORD_H

#include "common/base/err.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/text/request/token_rows.h"

struct call_bulk;

struct commit_answer {
    const char *ids; /* n of them, unaligned */
    uint32_t n;
    bool has_logprobs;
    const char *logprobs; /* n floats, unaligned */
    uint32_t n_versions;
    struct record_in versions; /* text, start, end each: record_str, record_u32 twice */
    bool cut;
    struct str finish_reason, response_id, parse_warning;
    struct str message;                 /* message in the bulk: p is NULL while there is none */
    struct token_rows rows[ROWS_KINDS]; /* the indexer's with COMMIT_INDEXER */
    uint32_t apart[ROWS_KINDS];         /* the piece that is their block; 0: there is none */
    uint32_t piece;                     /* COMMIT_BULK: that has the numbers */
    uint64_t queue_us, engine_us, gateway_us;
    enum commit_duplicate mode;
    uint32_t duplicate; /* a checkpoint's id, with a mode */
    struct str basis;
    uint32_t scored_tokens;
    uint64_t cached;   /* + 1; 0: not told */
    struct str odds;   /* COMMIT_ODDS; absent: none */
    uint32_t drifted;  /* COMMIT_DRIFT */
    struct str asked;  /* COMMIT_ASKED; absent: no basis was */
    struct str told;   /* or absent; of the bulk: p is NULL, */
    size_t told_bytes; /* and it is the next of BULK_TOLD */
};

struct commit_record {
    uint64_t call;
    uint64_t body_hash[2];
    int64_t max_tokens;
    float temperature;
    unsigned flags; /* COMMIT_... */
    uint32_t prompt_tokens;
    struct str key;        /* absent without COMMIT_KEY */
    uint32_t calls_before; /* COMMIT_AFTER */
    uint32_t chain;        /* UINT32_MAX without COMMIT_CHAIN */
    uint32_t kept;         /* COMMIT_EXHAUSTED with COMMIT_KEPT; nothing below is there then */

    struct str tools, kwargs; /* JSON or absent: COMMIT_NEW_ENV */
    struct str pool;          /* absent without COMMIT_POOL */
    uint32_t env;             /* else */
    uint32_t base;            /* COMMIT_BASE */
    uint32_t n_messages;      /* 0 with COMMIT_RAW */
    struct record_in
        messages;      /* JSON each: record_str; of the bulk: p is NULL while there is none */
    uint64_t texts_at; /* COMMIT_TEXTS: where they begin in BULK_TEXTS */

    uint32_t parent; /* COMMIT_PARENT */
    uint32_t trim, close;
    uint64_t sent;        /* COMMIT_SENT, else 0 */
    uint32_t run, common; /* COMMIT_RUN, else 0 */
    const char *context;  /* n_context ids, unaligned */
    uint32_t n_context;

    const struct call_bulk *bulk; /* COMMIT_BULK, once it is attached: borrowed. Until then there
                                are no ids, floats, blocks and texts of it, but their lengths */

    uint64_t cause;
    uint32_t diff_message;
    struct str diff_field, diff_stored, diff_request, label, parent_label;
    struct str dropped_fields; /* COMMIT_DROPPED */

    uint32_t n_answers;        /* 1 .. */
    struct record_in answers;  /* n_answers of them: commit_record_answer */
    bool has_only;             /* there is one answer, whose bytes are all in this record, */
    struct commit_answer only; /* which is kept as read, */
    const char *only_end;      /* and where it ends */
    uint64_t asked;
    struct str asked_text; /* asked == 1 */

    uint64_t tokens; /* context and answers */
};

/* Reads the body of a commit record (behind its head) to its end. -1: ERR_IO, it has
 * another form; ERR_UNSUPPORTED, it has flags of a later program. */
int commit_record_read(struct record_in *r, struct commit_record *ret, struct err *e);

/* Gives a record with COMMIT_BULK, which was read, the bytes of its bulk. Returns false if they are
 * not those that it names. */
bool commit_record_attach(struct commit_record *c, const struct call_bulk *bulk);

/* Of a commit's body only what every commit has, up to its key; a torn one sets r->bad. */
void commit_record_read_head(struct record_in *r, struct commit_record *c);

/* Goes over the answers of a record that was read. */
struct answer_cursor {
    struct record_in in;
    uint32_t piece; /* piece of the bulk */
    size_t bulk_at; /* in it: where the next answer's numbers begin */
};

struct answer_cursor commit_record_answers(const struct commit_record *c);
void commit_record_answer(const struct commit_record *c, struct answer_cursor *at,
                          struct commit_answer *ret);

/* The bulk of the call in the layout of its payload (payload.h): how many bytes, and where they are
 * put, unless `to` is NULL. */
size_t commit_record_bulk(const struct commit_record *c, char *to);

#endif
