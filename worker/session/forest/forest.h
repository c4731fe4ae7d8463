/*
 * struct forest: the messages and answers of one session. Two structures over one arena:
 *
 * - a trie of messages (struct message_node) for each environment (tools, chat-template kwargs and
 *   the pool of engines that answers, which must be equal for a checkpoint to be reusable), keyed
 *   by (parent, message key): a request is matched in one walk whatever the number of branches;
 * - checkpoints (struct checkpoint): one generated answer each, linked to the node of their
 *   assistant message (to none for a completion, which has no messages) and to the checkpoint that
 *   they continue. A checkpoint stores only what it added after its parent's tokens (after dropping
 *   `trim` of them): `context` (mask 0) and the sampled ids. Context that a different checkpoint
 *   already has is shared, not copied (struct context_run). Ids, logprobs and experts are in
 *   payloads, which may be out of memory (payload.h).
 *
 * An example: one environment, two branches. The model answered "4". Then one request continued
 * with "and 3+3?" and was sampled twice (n = 2), and a second request continued the same answer
 * with "why?", where the template no longer renders the "<end>" that the model had sampled.
 *
 *   nodes (messages)                      checkpoints (answers), and what each stores
 *
 *   env { tools, kwargs }
 *   '- root
 *      '- user "2+2?"
 *         '- assistant "4" <------------- A   context [<user>2+2?<asst>]      sampled [4<end>]
 *            |                            ^ parent of B, C and D
 *            |- user "and 3+3?"           |
 *            |  |- assistant "6" <------- B   context [<user>and 3+3?<asst>]  sampled [6<end>]
 *            |  '- assistant "six" <----- C   context = B's run, all of it    sampled [six<end>]
 *            |                            |     (shared: base = B's run, no ids of its own)
 *            '- user "why?"               |
 *               '- assistant "So." <----- D   trim 1: A's <end> is dropped
 *                                             context [<user>why?<asst>]      sampled [So.<end>]
 *
 * The tokens of B's path are A's context, A's sampled ids, B's context, B's sampled ids; those of
 * D's path omit the last of A's. A path's tokens are the ids that the engine was sent and returned,
 * never a new rendering of the messages.
 *
 * Checkpoints and nodes are never moved or changed once applied (except links, marks and a kept
 * audit), so readers may keep pointers while the session lives. Single-threaded; only apply.c and
 * the policies write.
 */
#ifndef RG_SESSION_FOREST_H
#define RG_SESSION_FOREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "worker/session/forest/message.h"

struct chain;
struct chat_known;
struct checkpoint;
struct json;
struct json_member;
struct new_messages;
struct prompt_env;

/* A message of the trie. The fields that are written for very many nodes at once (forest_hang, and
 * `through`) are adjacent, because each further cache line would cost as much again. */
struct message_node {
    uint32_t id;    /* order of creation, over all environments */
    uint32_t depth; /* messages on the path; 0: root of an environment, which has no message */
    uint64_t hash;
    struct message_node *parent;  /* NULL for an environment's root */
    struct message_node *chained; /* next in the hash bucket */
    /* members of msg.json, so that a listing of a conversation needs only this */
    struct json_member *members;
    uint32_t n_members;
    uint32_t samples; /* answers generated right after this message */
    struct message_node
        *recent; /* the child that any walk passed last. While the node of an answer is not in the
                    trie: an equal one of the same call before it, or NULL */
    /* the child that a record passed last. For an answer's node that was not added: the node
     * that existed already */
    struct message_node *latest;
    struct prompt_env *env;
    struct checkpoint *through; /* a checkpoint whose context rendered this message, or NULL */
    /* key in forest.by_echo; 0: none. While the node of an answer is not in the trie:
     * message_echo_hash */
    uint64_t echo;
    struct message_node *echoed; /* next node with that key */
    struct message msg;
    struct checkpoint *newest;  /* newest visible checkpoint at this message, or NULL */
    struct node_chains *chains; /* policy chains: those at this message; NULL: none was */
};

/* The chains at a message, newest first. */
struct node_chains {
    struct chain *heads; /* that end here */
    struct chain *backs; /* whose last assistant message follows here */
};

/* The parts of an environment. Empty and null values count as absent. */
struct env_key {
    const struct json *tools, *kwargs; /* or NULL */
    struct str pool;                   /* pool of engines; absent: the policy's */
    bool tools_hashed;                 /* tools_hash is set */
    uint64_t tools_hash[2];            /* set by long_tools_hash, or else by forest_env */
    uint64_t hash;                     /* set by forest_env when first needed; before: 0 */
};

struct prompt_env {
    uint32_t id;
    uint64_t hash;
    struct prompt_env *alike;  /* next environment with that hash */
    const struct json *tools;  /* or NULL */
    const struct json *kwargs; /* or NULL */
    struct str pool;           /* pool of engines; absent: the policy's */
    uint64_t tools_hash[2];    /* as in its key */
    struct message_node root;
};

/* One committed call. Its answers are checkpoints; an exhausted call has none. */
struct call_record {
    uint64_t number;
    uint64_t body_hash[2];
    struct str key; /* Idempotency-Key, or absent */
    int64_t max_tokens;
    uint64_t at_ms;
    uint32_t first_checkpoint, n_checkpoints; /* its answers are checkpoints[first_checkpoint ..] */
    uint32_t prompt_tokens;
    float temperature;
    bool exhausted;
    bool asked_brief; /* `asked` has no instructions, which are the conversation's first message */
    /* the newest call up to this one that has its body hash and no Idempotency-Key, as index + 1;
     * 0: none */
    uint32_t newest_plain;
    struct str asked; /* shared with the calls that have the same */
};

/* The newest call with a body hash and an Idempotency-Key, which are both in `said`, one after the
 * other. */
struct key_entry {
    uint32_t newest; /* index + 1 */
    char said[];
};

/* Sums for a list's row over the answers that no other answer follows, without hidden ones and
 * those of other pools. Updated as answers are added and removed (session_count_leaf), because
 * there may be very many. */
struct forest_leaves {
    uint64_t n, audited; /* number of answers, and of those that an export has audited */
    uint64_t drift;      /* number of tokens that differ in audited ones */
};

/* What a session spends its time on (session_sums.h). */
enum session_spending {
    SPENDING_START,
    SPENDING_QUEUE,
    SPENDING_ENGINE,
    SPENDING_GATEWAY,
    SPENDING_TOOLS,
    SPENDING_SCORING,
    SPENDINGS
};

/* Sums over the session's own answers, without those of other pools. */
struct forest_sums {
    uint64_t turns, truncated; /* answers; answers that were cut by length */
    uint64_t sampled;          /* their tokens */
    uint64_t copied;           /* forest.tokens of the beginning, which was copied */
    uint64_t last_ms;          /* wall clock of the newest answer; 0: none yet */
    uint64_t spent_us[SPENDINGS];
    bool numbered; /* some token's weight version is a number; the least of them: */
    uint64_t oldest;
    struct str newest; /* weight version of the newest token that has one; in the arena */
};

/* The end of an earlier walk, for a reader of requests that has seen the same messages before:
 * message n - 1 of that reading (chat_stretch) is this node, whose depth is n, as long as the
 * forest's `shape` is the same. */
struct walk_end {
    uint64_t reading;
    uint64_t shape;
    struct message_node *node; /* NULL: none */
};

enum { WALK_ENDS = 4 }; /* because agents that share a session take turns */

struct forest {
    struct arena arena;
    struct matcher matcher;
    struct matcher counting; /* matcher for lookups of walks, which count the bytes compared */
    VEC(struct prompt_env *) envs;
    /* prompt_env.hash -> the newest environment with that hash */
    struct map by_env;
    struct prompt_env *recent_env;        /* the environment that was found last, or NULL */
    VEC(struct message_node *) nodes;     /* by id */
    VEC(struct checkpoint *) checkpoints; /* by id */
    VEC(struct call_record *) calls;      /* in the arena */
    VEC(uint32_t) by_number;              /* indexes of calls, by call number */
    struct message_node **buckets;        /* nodes by their hash */
    uint32_t n_buckets, buckets_room;
    struct map by_response;
    struct map by_call;  /* id of a tool call -> the newest checkpoint that issued it */
    size_t longest_call; /* bytes of the longest such id; longer ones are not looked up */
    struct map by_echo;  /* node.echo -> the newest generated message with that key */
    size_t longest_said; /* bytes of the longest generated message; no echo is much longer */
    struct map by_hash;  /* body hash -> the newest call with it */
    struct map by_key;   /* body hash and Idempotency-Key -> struct key_entry */
    uint64_t tokens;     /* number of stored ids, context and sampled */
    uint32_t top_id;     /* the largest stored id */
    /* grows whenever a message may be found at a different node: a node gets another child or
     * other answers, or a call's id names a different checkpoint */
    uint64_t shape;
    struct walk_end ends[WALK_ENDS]; /* newest first */
    bool has_images;                 /* some message has a picture */
    bool has_signed;                 /* some answer is signed (message_is_signed) */
    VEC(uint64_t) seals;             /* hashes of the seals of the answers' thoughts */
    VEC(struct str) stops; /* the first different stop strings that ended answers, trimmed */
    struct forest_leaves leaves;
    struct forest_sums sums;
};

/* Returns the key of forest.by_hash. Borrowed. */
static inline struct str body_hash_key(const uint64_t body_hash[2])
{
    return str_of((const char *)body_hash, 2 * sizeof(*body_hash));
}

/* Writes the key by which a call with that body and that Idempotency-Key is found (key_entry). */
void call_key_put(struct buf *said, const uint64_t body_hash[2], struct str key);

/* Makes an empty forest whose messages are compared as `mt` says. */
void forest_init(struct forest *f, struct matcher mt);

/* Frees everything except payloads, which are the session's. */
void forest_done(struct forest *f);

/* Returns the environment with an equal key, or NULL. Compares only one or two environments,
 * however many there are. */
struct prompt_env *forest_env(struct forest *f, struct env_key *key);

/* Reports whether the environment has the key's tools. */
bool forest_same_tools(const struct prompt_env *g, struct env_key *key);

/* Adds an environment; no equal one may exist. The values are copied into the forest's arena, or
 * are in `own`, which the forest takes over without a copy. */
struct prompt_env *forest_env_add(struct forest *f, struct env_key *key, struct arena *own);

/* One walk of a request through an environment. */
struct walk {
    /* node of message n_matched - 1, whose ancestors are the messages before; or NULL */
    struct message_node *last;
    uint32_t n_matched;
    struct message unmatched; /* message n_matched, if n_matched < n */
    uint32_t n;

    /* Set by forest_walk_begin_known: */
    const struct chat_known *known; /* what is known of the messages; or NULL */
    struct message_node *began;     /* node where the walk began; NULL: at the root */
    uint64_t shape;                 /* the forest's `shape` at that time */
};

/* Limits of a walk: number of messages, and bytes of their texts. */
struct walk_room {
    uint32_t messages;
    size_t bytes;
    bool first; /* the first message is compared, however long it is */
};

/* Matches messages (a JSON array) from the environment's root as deep as possible, or as `room`
 * allows, from which the work is subtracted: after forest_walk_begin the caller calls
 * forest_walk_on until it returns true. A message for which there is no room counts as unknown, and
 * room->messages is 0 then. The forest may grow between two calls: messages that were matched stay
 * so. */
void forest_walk_begin(const struct json *messages, struct walk *ret);

/* Like forest_walk_begin, but begins where an earlier walk through that environment ended, if
 * `known` says that the messages so far are the same. The result equals that of a walk from the
 * root. */
void forest_walk_begin_known(const struct forest *f, const struct prompt_env *g,
                             const struct json *messages, const struct chat_known *known,
                             struct walk *ret);

/* Notes where such a walk has ended, for later walks. */
void forest_walk_remember(struct forest *f, const struct walk *w);

/* Returns the node of the walk's message n - 1, 0 < n <= n_matched. */
struct message_node *walk_node(const struct walk *w, uint32_t n);

bool forest_walk_on(struct forest *f, struct prompt_env *g, const struct json *messages,
                    struct arena *a, struct walk_room *room, struct walk *w);

/* Returns the child of `parent` with this message. Makes it if missing, with a copy of the
 * message. */
struct message_node *forest_child(struct forest *f, struct message_node *parent,
                                  const struct json *message);

/* Like forest_child, for a message in the forest's arena, which is not copied again. */
struct message_node *forest_child_of_own(struct forest *f, struct message_node *parent,
                                         const struct json *message);

/* Adds n nodes below `at`, each below the one before, and returns the last one's node (`at` for n
 * 0). Their messages must have been read for the forest's matcher and have their hashes, and be in
 * the forest's arena. Messages that exist already keep their nodes. The caller must note whether a
 * message has a picture (has_images). */
struct message_node *forest_hang(struct forest *f, struct message_node *at,
                                 struct message_node *const *nodes, uint32_t n);

/* Adds the last n prepared messages (new_messages.h) below `at`, each below the one before, and
 * returns the last one's node. The forest takes over their memory. */
struct message_node *new_messages_hang(struct new_messages *m, uint32_t n, struct forest *f,
                                       struct message_node *at);

/* Returns the child that matches, or NULL. tmp is for prepared texts. */
struct message_node *forest_find_child(struct forest *f, struct message_node *parent,
                                       const struct message *m);

/* Returns the child that matches, or that the message is an echo of (message_echoes_words), or
 * NULL. */
struct message_node *forest_find_echo(struct forest *f, struct message_node *parent,
                                      const struct message *m);

/* Finds an answer below `parent` with whose text and stop string the message begins. *ret_added:
 * what the message has after them, not empty. Returns NULL if there is none. */
struct message_node *forest_find_begun(struct forest *f, const struct message_node *parent,
                                       const struct message *m, struct str *ret_added);

/* Notes an answer that an upstream signed, and the seals of its thought. */
void forest_remember_signed(struct forest *f, const struct json *message);

/* Lets lookups find echoes that repeat the stop string that ended the answer. */
void forest_note_stop(struct forest *f, const struct checkpoint *t);

/* Lets lookups find echoes of an answer that was generated at this node. */
void forest_enter_echo(struct forest *f, struct message_node *n);

/* Does both for an answer whose node is prepared (new_answer_make): adds the node below `parent`,
 * unless the message exists there, and returns the message's node. */
struct message_node *forest_hang_answer(struct forest *f, struct message_node *parent,
                                        struct message_node *ready);

/* Notes that the answer has a tool call with that id, which is in the forest's arena. */
void forest_enter_call(struct forest *f, struct str id, struct checkpoint *t);

/* Notes the tool calls of the answers from checkpoint `from` on. */
void forest_enter_calls(struct forest *f, size_t from);

/* Returns the newest answer that issued a tool call with that id, or NULL. Of a long id only as
 * many bytes are read as the longest issued id has. */
struct checkpoint *forest_issuer(struct forest *f, struct str id);

/* Returns the text of the message's content: as stored if it is one string, else in the form in
 * which it is compared. */
struct str node_text(const struct message_node *node);

/* Returns the stored messages up to and including node, as a JSON array in the arena. */
struct json *node_messages(const struct message_node *node, struct arena *a);

/* Faster, for a node of f. Adds space for `extra` more messages. */
struct json *forest_messages(const struct forest *f, const struct message_node *node,
                             uint32_t extra, struct arena *a);

/* Returns the unique part of a response id, after its dialect's prefix: the key of by_response. */
struct str response_key(struct str id);

/* Interns short texts (labels, versions) in the session's arena. */
struct str forest_str(struct forest *f, struct str s);

/* Like forest_str for text that will be part of JSON: bytes that are no UTF-8 (of a raw header)
 * become '?'. */
struct str forest_text(struct forest *f, struct str s);

#endif
