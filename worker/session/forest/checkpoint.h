/*
 * struct checkpoint: one generated answer as stored: the context ids that it added behind its
 * parent's (a struct context_run, which may begin with another's), the sampled ids, and what the
 * client was told. forest.h draws how checkpoints stand together. For who reads answers (exports,
 * replays, scores); only apply.c and the policies write.
 */
#ifndef RG_SESSION_CHECKPOINT_H
#define RG_SESSION_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/session/store/session.h"
#include "worker/text/request/token_rows.h"

struct arena;
struct forest;
struct json;
struct json_out;
struct logprob_report;
struct message_node;
struct odds;
struct payload;
struct token_span;

/* A run of context ids: the first `base_n` of another run, then own ids. Samples of one call and
 * retries share a run by basing an empty one on it, so a context of 100,000 ids is stored once. */
struct context_run {
    const struct context_run *base;
    uint32_t base_n;
    uint32_t n;              /* own */
    uint32_t depth;          /* bases below; bounded by forest_run */
    struct payload *payload; /* begins with the own ids */
};

struct checkpoint_version {
    struct str version; /* interned in the session's arena */
    uint32_t start, end;
};

/* Where a request left the stored history: the message, its first field that differs, and both
 * texts from shortly before the first difference. */
struct checkpoint_diff {
    uint32_t message;
    struct str field, stored, request;
};

/* What the drift audit of the path that ends in a checkpoint found: kept by exports, no part of the
 * session's state. */
struct checkpoint_audit {
    bool done, audited;
    uint8_t first; /* an enum drift_kind */
    uint32_t count, position;
};

/* A struct token_rows whose block is in the answer's payload, or, a long one, in its own. */
struct checkpoint_rows {
    bool has;
    uint32_t len; /* bytes */
    uint32_t from, n, layers, topk;
    struct payload *apart; /* NULL: it is in the answer's payload */
};

/* One generated answer. */
struct checkpoint {
    /* What goes through a path needs, in one line of memory. */
    uint32_t id;        /* order of commits */
    uint32_t total;     /* tokens up to and including this checkpoint */
    uint32_t n;         /* sampled ids */
    uint32_t n_context; /* ids of `context` */
    uint32_t at;        /* in the payload: the sampled ids, logprobs, experts */
    struct checkpoint *parent;
    struct payload *payload; /* its call's, as the context's; or another piece of its bulk */
    struct context_run context;

    uint32_t seq;               /* order of commits and refreshes: the newest wins */
    uint32_t call;              /* index into forest.calls */
    uint32_t answer;            /* which of its call's, from 0 */
    uint32_t depth;             /* generated checkpoints on the path, this one included */
    struct message_node *node;  /* of the assistant message; NULL: a completion without history.
                                   Before it is linked: one that is ready to be hung, or NULL */
    struct checkpoint *older;   /* previous checkpoint at the same node */
    struct checkpoint *instead; /* of the same answer twice: the one that stands for this one, which
                                   may be hidden in its turn; else NULL */
    uint32_t children;          /* checkpoints built on this one */
    bool hidden; /* in no branch: the same answer came twice, or a fork left it out */
    bool copied; /* another session's, before it was forked: not trained here */
    bool cut;    /* did not end at a stop id */
    bool text;   /* it, or a checkpoint it stands on, has no ids: captured as text */
    bool has_logprobs;
    bool cached_told; /* cached_tokens is on record */

    uint32_t n_close; /* the first ids of its context, which only close the answer before */
    uint32_t trim;    /* of the parent's sampled ids, the last, which this one does not stand on */
    enum session_cause cause;
    struct checkpoint_rows rows[ROWS_KINDS];
    uint64_t sent; /* ids_hash of what the engine was asked with; 0: not on record */
    const struct checkpoint_version *versions;
    uint32_t n_versions;
    uint32_t odds_len; /* bytes; 0: none */

    const struct json *message; /* assistant message as the client was told */
    struct str response_id, finish_reason, parse_warning, told;
    struct str label, parent_label;
    struct str dropped_fields;          /* of its request, a JSON list; absent: none */
    const struct checkpoint_diff *diff; /* NULL: not on record */
    uint64_t queue_us, engine_us, gateway_us, at_ms;
    struct str logprob_basis; /* absent: not on record */
    struct str asked_basis;   /* absent: the engine has no field for it */
    uint32_t drifted_tokens;  /* of the prompt that the engine made of the images; 0: as sent */
    uint32_t scored_tokens;   /* whose logprob was asked for afterwards */
    uint32_t cached_tokens;   /* of the prompt, as the engine told */
    struct checkpoint_audit audit;
    struct logprob_report *reports; /* trainers' logprobs, newest first; or NULL */
};

/* The runs that hold the context of t, each with a payload; its answer's may be another one. */
#define EACH_CONTEXT_RUN(run, t) \
    for (const struct context_run *run = &(t)->context; run; run = run->base)

static inline bool checkpoint_lies_apart(const struct checkpoint *t)
{
    return t->payload != t->context.payload;
}

/* What was sampled, n of each; its payload must have been recalled. */
const int32_t *checkpoint_ids(const struct checkpoint *t);

/* Returns the log-probabilities of the sampled ids, one each, or NULL if none were recorded; the
 * payload must have been recalled. */
const float *checkpoint_logprobs(const struct checkpoint *t);

/* Writes the first n bytes, of at most rows[kind].len, of a block of rows as the engine sent them
 * (rows x layers x topk); the payloads must have been recalled, those of rows, too. */
void checkpoint_block_copy(const struct checkpoint *t, enum rows_kind kind, size_t n, char *out);

/* How many bytes a block of rows takes in the answer's own payload. */
size_t checkpoint_rows_here(const struct checkpoint *t, enum rows_kind kind);

/* Whether the engine computed the rows of an answer again after it had sampled it (token_rows). */
static inline bool checkpoint_is_recomputed(const struct checkpoint *t)
{
    return (t->rows[ROWS_EXPERTS].has && t->rows[ROWS_EXPERTS].n == 0) ||
           (t->rows[ROWS_INDEXER].has && t->rows[ROWS_INDEXER].n == 0);
}

/* Why the routed experts that engines were asked for are not known, in a sentence; NULL: they are
 * known, or were not asked for, or were computed again. */
const char *checkpoint_lacks_experts(const struct checkpoint *t);

/* Writes the member `warnings` of an answer, a list of sentences, if there are any. */
void checkpoint_write_warnings(const struct checkpoint *t, struct json_out *o);

/* Writes the member `latency_ms`: what its call took in queue, engine and gateway. */
void checkpoint_put_latency(const struct checkpoint *t, struct json_out *o);

/* Bytes of one row of a kind; 0: there is none. */
static inline uint32_t checkpoint_row_bytes(const struct checkpoint *t, enum rows_kind kind)
{
    return t->rows[kind].n ? t->rows[kind].len / t->rows[kind].n : 0;
}

/* Reads what else could have been sampled; false: none is kept. The payload must have been
 * recalled, and the arrays are borrowed from it. */
bool checkpoint_odds(const struct checkpoint *t, struct odds *ret);

/* The pool of engines that answered; absent: the policy's. What another pool answered is never
 * trained. */
struct str checkpoint_pool(const struct checkpoint *t);

/* The checkpoint that stands for an answer in branches: itself, or, where the same answer came
 * twice, the other one. Shortens the way to it for the next look. */
struct checkpoint *checkpoint_shown(struct checkpoint *t);

/* Cut by length: such an answer may not be extended (tree). Answers cut by a stop string may. */
static inline bool checkpoint_truncated(const struct checkpoint *t)
{
    return str_eq_c(t->finish_reason, "length");
}

/* Makes *r hold base[0..base_n) and n ids more; base is NULL, or context_run_extends(base, base_n).
 */
void forest_run(struct forest *f, struct context_run *r, const struct context_run *base,
                uint32_t base_n, uint32_t n);

/* Whether a run may share the first n ids of this one, or there are too many bases below. */
bool context_run_extends(const struct context_run *base, uint32_t n);

/* Returns how many leading ids of the span a run holds. */
uint32_t context_run_common(const struct context_run *r, struct token_span ids);

/* Returns how many ids the run has, those of its bases included. */
uint32_t context_run_length(const struct context_run *r);

/* Writes the ids of the path that ends in t: t->total of them. */
void checkpoint_copy(const struct checkpoint *t, int32_t *out);

/* Writes the ids [from, from + n) of that path, all of which it has. */
void checkpoint_copy_part(const struct checkpoint *t, uint32_t from, uint32_t n, int32_t *out);

/* Returns true if the n ids begin with those of the path that ends in t, which has ids. */
bool checkpoint_begins(const struct checkpoint *t, const int32_t *ids, size_t n);

/* A hash of ids that grows with them: of a + b it is ids_hash(ids_hash(h, a), b). h: IDS_HASH_NONE
 * for no ids. Never 0. */
#define IDS_HASH_NONE UINT64_C(0x51ed270b0a1f39c1)
uint64_t ids_hash(uint64_t h, const int32_t *ids, size_t n);

/* Where the sampled ids of t start, counted over its whole path. */
static inline uint32_t checkpoint_start(const struct checkpoint *t)
{
    return t->total - t->n;
}

/* The checkpoints of the path, oldest first, in the arena: t->depth of them. */
struct checkpoint **checkpoint_path(struct checkpoint *t, struct arena *a);

#endif
