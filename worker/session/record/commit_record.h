/*
 * struct commit_record: a decoded commit record (layout in commit.h). This is the only decoder.
 * Everything borrows the bytes of the record and of its bulk, and nothing is allocated, so that
 * applying, summing up and copying out the bulk read the same data. Checks the form: every length
 * fits, and no bytes follow the end. apply.c checks whether the record is valid in its session.
 */
#ifndef RG_SESSION_COMMIT_RECORD_H
#define RG_SESSION_COMMIT_RECORD_H

#include "common/base/err.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/text/request/token_rows.h"

struct call_bulk;

struct commit_answer {
    const char *ids; /* n ids, unaligned */
    uint32_t n;
    bool has_logprobs;
    const char *logprobs; /* n floats, unaligned */
    uint32_t n_versions;
    struct record_in versions; /* text, start, end of each: record_str, record_u32 twice */
    bool cut;
    struct str finish_reason, response_id, parse_warning;
    /* p is NULL while the message is in a bulk that is not attached */
    struct str message;
    /* rows of each kind; those of the indexer only with COMMIT_INDEXER */
    struct token_rows rows[ROWS_KINDS];
    uint32_t apart[ROWS_KINDS]; /* number of the piece that is their block; 0: none */
    uint32_t piece;             /* COMMIT_BULK: number of the piece with the numbers */
    uint64_t queue_us, engine_us, gateway_us;
    enum commit_duplicate mode;
    uint32_t duplicate; /* id of a checkpoint, and a mode */
    struct str basis;
    uint32_t scored_tokens;
    uint64_t cached;   /* cached tokens + 1; 0: unknown */
    struct str odds;   /* COMMIT_ODDS; absent: none */
    uint32_t drifted;  /* COMMIT_DRIFT */
    struct str asked;  /* COMMIT_ASKED; absent: no basis was requested */
    struct str told;   /* or absent; p is NULL if it is in the bulk, */
    size_t told_bytes; /* as the next bytes of BULK_TOLD, so many */
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
    /* COMMIT_EXHAUSTED with COMMIT_KEPT; the fields below are not set then */
    uint32_t kept;

    struct str tools, kwargs;  /* JSON or absent: COMMIT_NEW_ENV */
    struct str pool;           /* absent without COMMIT_POOL */
    uint32_t env;              /* set without COMMIT_NEW_ENV */
    uint32_t base;             /* COMMIT_BASE */
    uint32_t n_messages;       /* 0 with COMMIT_RAW */
    struct record_in messages; /* JSON of each: record_str; p is NULL while they are in a bulk that
                                  is not attached */
    uint64_t texts_at;         /* COMMIT_TEXTS: their offset in BULK_TEXTS */

    uint32_t parent; /* COMMIT_PARENT */
    uint32_t trim, close;
    uint64_t sent;        /* COMMIT_SENT, else 0 */
    uint32_t run, common; /* COMMIT_RUN, else 0 */
    const char *context;  /* n_context ids, unaligned */
    uint32_t n_context;

    /* COMMIT_BULK, after commit_record_attach: borrowed. Before, the record has no ids, floats,
     * blocks and texts, only their lengths */
    const struct call_bulk *bulk;

    uint64_t cause;
    uint32_t diff_message;
    struct str diff_field, diff_stored, diff_request, label, parent_label;
    struct str dropped_fields; /* COMMIT_DROPPED */

    uint32_t n_answers;        /* at least 1 */
    struct record_in answers;  /* n_answers answers: commit_record_answer */
    bool has_only;             /* there is one answer, whose bytes are all in this record, */
    struct commit_answer only; /* which is kept as decoded, */
    const char *only_end;      /* and the end of its bytes */
    uint64_t asked;
    struct str asked_text; /* set if asked == 1 */

    uint64_t tokens; /* context and answers */
};

/* Reads the body of a commit record (after its head) to its end. Returns -1 with ERR_IO if the form
 * is wrong, with ERR_UNSUPPORTED if it has flags of a later program. */
int commit_record_read(struct record_in *r, struct commit_record *ret, struct err *e);

/* Gives a record with COMMIT_BULK, which was read, the bytes of its bulk. Returns false if they are
 * not those that the record names. */
bool commit_record_attach(struct commit_record *c, const struct call_bulk *bulk);

/* Iterates over the answers of a record that was read. */
struct answer_cursor {
    struct record_in in;
    uint32_t piece; /* number of the current piece of the bulk */
    size_t bulk_at; /* offset of the next answer's numbers in that piece */
};

struct answer_cursor commit_record_answers(const struct commit_record *c);
void commit_record_answer(const struct commit_record *c, struct answer_cursor *at,
                          struct commit_answer *ret);

/* Writes the bulk of the call to `to` in the layout of its payload (payload.h) and returns its
 * bytes. With `to` NULL only counts. */
size_t commit_record_bulk(const struct commit_record *c, char *to);

#endif
