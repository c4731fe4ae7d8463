/*
 * struct checkpoint: one generated answer as stored: the context ids that it added after its
 * parent's (a struct context_run, which may begin with a shared one), the sampled ids, and what the
 * client was sent. forest.h shows how checkpoints are linked. For readers of answers (exports,
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
struct message;
struct message_node;
struct model;
struct odds;
struct payload;
struct token_span;

/* A run of context ids: the first `base_n` ids of a base run, then own ids. Samples of one call,
 * and retries, share a run through an empty one based on it, so that a context of 100,000 ids is
 * stored once. */
struct context_run {
    const struct context_run *base;
    uint32_t base_n;
    uint32_t n;              /* number of own ids */
    uint32_t depth;          /* number of bases below; bounded by forest_run */
    struct payload *payload; /* begins with the own ids */
};

struct checkpoint_version {
    struct str version; /* interned in the session's arena */
    uint32_t start, end;
};

/* Where a request differs from the stored history: the message, its first field that differs, and
 * both texts from shortly before the first difference. */
struct checkpoint_diff {
    uint32_t message;
    struct str field, stored, request;
};

/* Result of the drift audit of the path that ends in a checkpoint. Exports keep it; it is no part
 * of the session's state. */
struct checkpoint_audit {
    bool done, audited;
    uint8_t first; /* an enum drift_kind */
    uint32_t count, position;
};

/* A struct token_rows whose block is in the answer's payload or, if it is long, in a payload of its
 * own. */
struct checkpoint_rows {
    bool has;
    bool lost;    /* they stayed on the session's earlier node (--fleet-rows off) */
    uint32_t len; /* bytes */
    uint32_t from, n, layers, topk;
    struct payload *apart; /* NULL: the block is in the answer's payload */
};

/* Texts that few answers have: of the request, and of the answer's parsing. Each may be absent. */
struct checkpoint_remarks {
    struct str label, parent_label;
    struct str dropped_fields; /* ignored fields of the request, a JSON list */
    struct str parse_warning;
    const struct checkpoint_diff *diff; /* NULL: not on record */
};

/* Distribution of an answer's logprobs. One struct for all answers in a row that have the same. */
struct checkpoint_basis {
    struct str reported; /* absent: not on record */
    struct str asked;    /* that the engine was asked for; absent: it has no field for that */
};

/* One generated answer. */
struct checkpoint {
    /* What goes through a path needs, in one line of memory. */
    uint32_t id;        /* order of commits */
    uint32_t total;     /* tokens up to and including this checkpoint */
    uint32_t n;         /* number of sampled ids */
    uint32_t n_context; /* number of ids of `context` */
    uint32_t at;        /* offset in the payload: the sampled ids, logprobs, experts */
    uint32_t seq;       /* order of commits and refreshes: the newest wins */
    struct checkpoint *parent;
    /* payload of its call, shared with the context; or a different piece of its bulk */
    struct payload *payload;
    struct context_run context;

    uint32_t call;     /* index in forest.calls */
    uint32_t answer;   /* index among the answers of its call */
    uint32_t depth;    /* generated checkpoints on the path, including this one */
    uint32_t children; /* number of checkpoints that continue this one */
    /* node of the assistant message; NULL: a completion without history. Before the checkpoint
     * is linked: a node that is ready to be added, or NULL */
    struct message_node *node;
    struct checkpoint *older; /* previous checkpoint at the same node */
    /* if the same answer is stored twice: the checkpoint that represents this one, which may be
     * hidden as well; else NULL */
    struct checkpoint *instead;
    bool hidden; /* in no branch, because the same answer is stored twice, or a fork left it out */
    bool copied; /* belonged to the session that was forked, so it is not trained here */
    bool cut;    /* did not end at a stop id */
    bool text;   /* this checkpoint, or one on its path, has no ids: captured as text */
    bool has_logprobs;
    bool cached_told; /* cached_tokens is on record */
    uint8_t cause;    /* an enum session_cause */

    uint32_t n_close; /* number of leading context ids that only close the answer before */
    uint32_t trim;    /* number of the parent's last sampled ids that this one drops */
    struct checkpoint_rows *rows; /* of ROWS_KINDS; NULL: none (checkpoint_rows) */
    uint64_t sent; /* ids_hash of the ids that the engine was sent; 0: not on record */
    const struct checkpoint_version *versions;
    uint32_t n_versions;
    uint32_t odds_len; /* bytes; 0: none */

    const struct json *message; /* assistant message as the client got it */
    struct str response_id, finish_reason, told;
    const struct checkpoint_remarks *remarks; /* NULL: none (checkpoint_remarks) */
    uint64_t queue_us, engine_us, gateway_us, at_ms;
    const struct checkpoint_basis *basis;
    /* tokens of the different prompt that the engine made of the images; 0: as sent */
    uint32_t drifted_tokens;
    uint32_t scored_tokens; /* number of tokens whose logprobs were requested afterwards */
    uint32_t cached_tokens; /* cached tokens of the prompt, as the engine reports */
    struct checkpoint_audit audit;
    struct logprob_report *reports; /* trainers' logprobs, newest first; or NULL */
};

/* Iterates over the runs that hold the context of t, each with a payload. The answer's payload may
 * be a different one. */
#define EACH_CONTEXT_RUN(run, t) \
    for (const struct context_run *run = &(t)->context; run; run = run->base)

/* Return what the answer has of rows of a kind, and its remarks; zeroed structs if it has none. */
static inline const struct checkpoint_rows *checkpoint_rows(const struct checkpoint *t,
                                                            enum rows_kind kind)
{
    static const struct checkpoint_rows none;

    return t->rows ? &t->rows[kind] : &none;
}

static inline const struct checkpoint_remarks *checkpoint_remarks(const struct checkpoint *t)
{
    static const struct checkpoint_remarks none;

    return t->remarks ? t->remarks : &none;
}

static inline bool checkpoint_lies_apart(const struct checkpoint *t)
{
    return t->payload != t->context.payload;
}

/* Returns the stop string that ended the answer; absent if none did, or if no ids of the answer are
 * known, so that they cannot have it. Read from `told`. */
struct str checkpoint_stop(const struct checkpoint *t);

/* Reports whether the message has the answer's text, its stop string, and more, which is
 * *ret_added. */
bool message_begins_with(const struct message *m, const struct checkpoint *t,
                         struct str *ret_added);

/* Removes from the added text what the answer's last id has after the stop string. Returns false if
 * the text does not begin with that, or if the suffix could not be made of the text alone. */
bool checkpoint_trim_added(const struct model *m, const struct checkpoint *t,
                           struct token_span last, struct arena *a, struct str *added);

/* Return what was sampled, n values each. The payload must have been recalled. */
const int32_t *checkpoint_ids(const struct checkpoint *t);

/* Returns the n logprobs of the sampled ids, or NULL if none were recorded. The payload must have
 * been recalled. */
const float *checkpoint_logprobs(const struct checkpoint *t);

/* Writes the first n bytes, at most checkpoint_rows' len, of a block of rows as the engine sent
 * them (rows x layers x topk). The payloads, also those of rows, must have been recalled. */
void checkpoint_block_copy(const struct checkpoint *t, enum rows_kind kind, size_t n, char *out);

/* Returns the bytes of a block of rows in the answer's own payload. */
size_t checkpoint_rows_here(const struct checkpoint *t, enum rows_kind kind);

/* Reports whether the engine computed the rows of an answer again after it had sampled it
 * (token_rows). */
static inline bool checkpoint_is_recomputed(const struct checkpoint *t)
{
    const struct checkpoint_rows *experts = checkpoint_rows(t, ROWS_EXPERTS);
    const struct checkpoint_rows *indexer = checkpoint_rows(t, ROWS_INDEXER);

    return (experts->has && experts->n == 0) || (indexer->has && indexer->n == 0);
}

/* Returns a sentence that says why the routed experts that engines were asked for are not known.
 * Returns NULL if they are known, were not asked for, or were computed again. */
const char *checkpoint_lacks_experts(const struct checkpoint *t);

/* Returns a sentence if the answer's indexer top-k stayed on another node of a fleet, else NULL. */
const char *checkpoint_lost_indexer(const struct checkpoint *t);

/* Writes the member `warnings` of an answer, a list of sentences, if there are any. */
void checkpoint_write_warnings(const struct checkpoint *t, struct json_out *o);

/* Writes the member `latency_ms`: the time that its call spent in queue, engine and gateway. */
void checkpoint_put_latency(const struct checkpoint *t, struct json_out *o);

/* Returns the bytes of one row of a kind, 0 if there is none. */
static inline uint32_t checkpoint_row_bytes(const struct checkpoint *t, enum rows_kind kind)
{
    const struct checkpoint_rows *r = checkpoint_rows(t, kind);

    return r->n ? r->len / r->n : 0;
}

/* Reads which other tokens could have been sampled. Returns false if that was not kept. The payload
 * must have been recalled, and the arrays are borrowed from it. */
bool checkpoint_odds(const struct checkpoint *t, struct odds *ret);

/* Returns the pool of engines that answered. Absent: the policy's. Answers of a different pool are
 * never trained. */
struct str checkpoint_pool(const struct checkpoint *t);

/* Returns the checkpoint that represents an answer in branches: itself or, if the same answer is
 * stored twice, the other one. Shortens the path to it for later calls. */
struct checkpoint *checkpoint_shown(struct checkpoint *t);

/* Reports whether the answer was cut by length. Such an answer may not be extended (tree); one that
 * was cut by a stop string may. */
static inline bool checkpoint_truncated(const struct checkpoint *t)
{
    return str_eq_c(t->finish_reason, "length");
}

/* Makes *r contain base[0..base_n) and n further ids. base is NULL, or context_run_extends(base,
 * base_n). */
void forest_run(struct forest *f, struct context_run *r, const struct context_run *base,
                uint32_t base_n, uint32_t n);

/* Reports whether a run may share the first n ids of this one. Returns false if there are too many
 * bases below. */
bool context_run_extends(const struct context_run *base, uint32_t n);

/* Returns how many leading ids of the span the run contains. */
uint32_t context_run_common(const struct context_run *r, struct token_span ids);

/* Returns the number of the run's ids, including those of its bases. */
uint32_t context_run_length(const struct context_run *r);

/* Returns the t->total ids of the path of f that ends in t as parts in its payloads, none of which
 * is empty. The array is in the arena, with space for one part more. *ret_n: number of parts. */
struct token_span *checkpoint_parts(const struct forest *f, const struct checkpoint *t,
                                    struct arena *a, size_t *ret_n);

/* Writes the t->total ids of the path that ends in t. */
void checkpoint_copy(const struct checkpoint *t, int32_t *out);

/* Writes the ids [from, from + n) of that path, all of which must exist. */
void checkpoint_copy_part(const struct checkpoint *t, uint32_t from, uint32_t n, int32_t *out);

/* Reports whether the n ids begin with the ids of the path that ends in t, which must have ids. */
bool checkpoint_begins(const struct checkpoint *t, const int32_t *ids, size_t n);

/* Computes a hash of ids in steps: that of a + b is ids_hash(ids_hash(h, a), b). h is IDS_HASH_NONE
 * for no ids. Never returns 0. */
#define IDS_HASH_NONE UINT64_C(0x51ed270b0a1f39c1)
uint64_t ids_hash(uint64_t h, const int32_t *ids, size_t n);

/* Returns the position in the whole path at which the sampled ids of t start. */
static inline uint32_t checkpoint_start(const struct checkpoint *t)
{
    return t->total - t->n;
}

/* Returns the t->depth checkpoints of the path, oldest first, in the arena. */
struct checkpoint **checkpoint_path(struct checkpoint *t, struct arena *a);

#endif
