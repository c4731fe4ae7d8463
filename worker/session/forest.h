/*
 * struct forest: what one session remembers. Two structures over one arena:
 *
 * - a trie of messages (struct node), one per gate (tools + chat-template kwargs, which must be
 *   equal for a checkpoint to be reusable), keyed by (parent, message key): a request is matched
 *   in one walk whatever the number of branches;
 * - checkpoints (struct turn): one generated answer each, hanging at the node of their assistant
 *   message, linked to the turn they were built on. A turn stores only what it added after its
 *   parent's tokens (after dropping `trim` of them): `context` (mask 0) and the sampled ids.
 *   Context that another turn already has is shared, not copied (struct run). Ids, logprobs and
 *   experts lie in payloads, which may be out of memory (payload.h).
 *
 * Turns and nodes are never moved or changed once applied (links, marks and a kept audit aside), so
 * readers may hold them while the session lives. Single-threaded; only apply.c and the policies
 * write.
 */
#ifndef RG_SESSION_FOREST_H
#define RG_SESSION_FOREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "worker/session/message.h"
#include "worker/session/payload.h"
#include "worker/session/session.h"
#include "worker/tokens/span.h"

struct chain;
struct turn;
struct gate;

struct node {
    uint32_t id;    /* order of making, over all gates */
    uint32_t depth; /* messages on the path; 0: a gate's root, which holds none */
    uint64_t hash;
    struct node *parent;  /* NULL for a gate's root */
    struct node *chained; /* next in the hash bucket */
    struct node *recent;  /* the child passed last, by whoever */
    struct node *latest;  /* the child that a record passed last */
    uint64_t echo;        /* key in forest.by_echo; 0: none */
    struct node *echoed;  /* the next one with that key */
    struct gate *gate;
    struct message msg;
    uint32_t samples;     /* answers generated right after this message */
    struct turn *newest;  /* newest visible checkpoint at this message, or NULL */
    struct turn *through; /* a turn whose context rendered this message, or NULL */
    struct chain *heads;  /* policy chains: those that end here, newest first */
    struct chain *backs;  /* those whose last assistant follows here, newest first */
};

struct gate {
    uint32_t id;
    const struct json *tools;  /* or NULL */
    const struct json *kwargs; /* or NULL */
    struct node root;
};

/* A run of context ids: the first `base_n` of another run, then own ids. */
struct run {
    const struct run *base;
    uint32_t base_n;
    uint32_t n;              /* own */
    uint32_t depth;          /* bases below; bounded by forest_run */
    struct payload *payload; /* begins with the own ids */
};

struct turn_version {
    struct str version; /* interned in the session's arena */
    uint32_t start, end;
};

/* What the drift audit of the path that ends in a turn found: kept by exports, no part of the
 * session's state. */
struct turn_audit {
    bool done, audited;
    uint8_t first; /* an enum drift_kind */
    uint32_t count, position;
};

/* One generated answer. */
struct turn {
    uint32_t id;   /* order of commits */
    uint32_t seq;  /* order of commits and refreshes: the newest wins */
    uint32_t call; /* index into forest.calls */
    uint32_t answer;
    uint32_t depth; /* generated turns on the path, this one included */
    struct turn *parent;
    struct node *node;  /* of the assistant message; NULL: a completion without history */
    struct turn *older; /* previous checkpoint at the same node */
    uint32_t children;  /* turns built on this one */
    bool hidden;        /* same answer again: another turn stands for it */
    bool cut;           /* did not end at a stop id */
    bool text;          /* it, or a turn it stands on, has no ids: captured as text */

    struct run context;
    uint32_t n_context, n_close, trim;
    uint32_t at; /* in the context's payload: the sampled ids, logprobs, experts */
    uint32_t n;  /* sampled ids */
    bool has_logprobs, has_experts;
    uint32_t total; /* tokens up to and including this turn */
    uint64_t sent;  /* ids_hash of what the engine was asked with; 0: not on record */
    const struct turn_version *versions;
    uint32_t n_versions;

    const struct json *message; /* assistant message as the client was told */
    struct str response_id, finish_reason, parse_warning, told;
    struct str label, parent_label;
    enum session_cause cause;
    uint32_t diff_message;
    struct str diff_field, diff_stored, diff_request;
    uint32_t experts_len; /* bytes */
    uint32_t experts_from, experts_rows, experts_layers, experts_topk;
    uint64_t queue_us, engine_us, gateway_us, at_ms;
    struct str logprob_basis; /* absent: not on record */
    uint32_t scored_tokens;   /* whose logprob was asked for afterwards */
    bool cached_told;
    uint32_t cached_tokens; /* of the prompt, as the engine told */
    struct turn_audit audit;
};

/* What was sampled, n of each; its payload must have been recalled. */
static inline const int32_t *turn_ids(const struct turn *t)
{
    return (const int32_t *)(const void *)(payload_bytes(t->context.payload) + t->at);
}

/* NULL: it has none. */
static inline const float *turn_logprobs(const struct turn *t)
{
    return t->has_logprobs
               ? (const float *)(const void *)(payload_bytes(t->context.payload) + t->at) + t->n
               : NULL;
}

/* A raw block, or absent. */
static inline struct str turn_experts(const struct turn *t)
{
    const char *p;

    if (!t->has_experts)
        return (struct str){0};
    p = payload_bytes(t->context.payload) + t->at;
    return str_of(p + (size_t)t->n * (t->has_logprobs ? 8 : 4), t->experts_len);
}

/* Cut by length: such an answer may not be extended (tree). Answers cut by a stop string may. */
static inline bool turn_truncated(const struct turn *t)
{
    return str_eq_c(t->finish_reason, "length");
}

/* One committed call. */
struct call {
    uint64_t number;
    uint64_t body_hash[2];
    struct str key;     /* Idempotency-Key, or absent */
    uint32_t same_body; /* the call before with this hash, as index + 1; 0: none */
    int64_t max_tokens;
    uint64_t at_ms;
    uint32_t first_turn, n_turns; /* its answers: turns[first_turn ..] */
    uint32_t prompt_tokens;
    float temperature;
    bool exhausted;
    struct str asked; /* shared with the calls that asked the same */
};

/* The newest call with a body hash; here because a key must not move. */
struct hash_entry {
    uint64_t body_hash[2];
    uint32_t newest; /* index + 1 */
};

struct forest {
    struct arena arena;
    struct matcher matcher;
    VEC(struct gate *) gates;
    VEC(struct node *) nodes; /* by id */
    VEC(struct turn *) turns; /* by id */
    VEC(struct call) calls;
    struct node **buckets;
    uint32_t n_buckets; /* power of two */
    struct map by_response;
    struct map by_call; /* id of a tool call -> the newest turn that issued it */
    struct map by_echo; /* node.echo -> the newest generated message with that key */
    struct map by_hash; /* body hash -> struct hash_entry */
    uint64_t tokens;    /* stored ids, context and sampled */
};

void forest_init(struct forest *f, struct matcher mt);
void forest_done(struct forest *f);

/* The gate with equal tools and kwargs, or NULL. forest_gate_add copies the values. */
struct gate *forest_gate(struct forest *f, const struct json *tools, const struct json *kwargs);
struct gate *forest_gate_add(struct forest *f, const struct json *tools, const struct json *kwargs);

/* One walk of a request through a gate. */
struct walk {
    struct node **path; /* path[i] holds message i; n_matched of them, in the arena */
    uint32_t n_matched;
    struct message unmatched; /* message n_matched when n_matched < n */
    uint32_t n;
};

/* Matches messages (a JSON array) from the gate's root as deep as it goes. */
void forest_walk(struct forest *f, struct gate *g, const struct json *messages, struct arena *a,
                 struct walk *ret);

/* The child of `parent` with this message, made when missing (the message is copied). */
struct node *forest_child(struct forest *f, struct node *parent, const struct json *message);

/* The same for a message that lies in the forest's arena: it is not copied again. */
struct node *forest_child_of_own(struct forest *f, struct node *parent, const struct json *message);

/* The child that matches, or NULL; tmp is for prepared texts. */
struct node *forest_find_child(struct forest *f, struct node *parent, const struct message *m);

/* The child that matches, or that the message is an echo of (message_is_echo), or NULL. */
struct node *forest_find_echo(struct forest *f, struct node *parent, const struct message *m);

/* An answer was generated at this node: its echoes are to be found. */
void forest_note_echo(struct forest *f, struct node *n);

/* Makes *r hold base[0..base_n) and n ids more; base may be NULL. Returns how many of the base's
 * ids must be copied before the run's own ones (0 unless !run_extends): r->n counts them. */
uint32_t forest_run(struct forest *f, struct run *r, const struct run *base, uint32_t base_n,
                    uint32_t n);

/* Whether a run may share the first n ids of this one, or there are too many bases below. */
bool run_extends(const struct run *base, uint32_t n);

/* How many leading ids of the span a run holds. */
uint32_t run_common(const struct run *r, struct token_span ids);
uint32_t run_length(const struct run *r);

/* Writes the first `n` ids of the run. */
void run_copy(const struct run *r, uint32_t n, int32_t *out);

/* Writes the ids of the path that ends in t: t->total of them. */
void turn_copy(const struct turn *t, int32_t *out);

/* A hash of ids that grows with them: of a + b it is ids_hash(ids_hash(h, a), b). h: IDS_HASH_NONE
 * for no ids. Never 0. */
#define IDS_HASH_NONE UINT64_C(0x51ed270b0a1f39c1)
uint64_t ids_hash(uint64_t h, const int32_t *ids, size_t n);

/* Where the sampled ids of t start, counted over its whole path. */
static inline uint32_t turn_start(const struct turn *t)
{
    return t->total - t->n;
}

/* The turns of the path, oldest first, in the arena: t->depth of them. */
struct turn **turn_path(struct turn *t, struct arena *a);

/* The stored messages up to and including node, as a JSON array in the arena. */
struct json *node_messages(const struct node *node, uint32_t extra, struct arena *a);

/* What is unique in a response id, which begins as its dialect's ids do: the key of by_response. */
struct str response_key(struct str id);

/* Interns short texts (labels, versions) in the session's arena. */
struct str forest_str(struct forest *f, struct str s);

/* The same for text that will stand in JSON: what is no UTF-8 (a header's raw bytes) becomes '?'.
 */
struct str forest_text(struct forest *f, struct str s);

#endif
