/*
 * struct session_view: what exports may read of a session beyond session.h, without the body of
 * struct session, which stays in this folder. A new view must be taken after each pause, because
 * the session may have changed.
 */
#ifndef RG_SESSION_SESSION_VIEW_H
#define RG_SESSION_SESSION_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct checkpoint;
struct json;
struct reward;
struct session;

/* All members are borrowed from the session. */
struct session_view {
    struct str id;
    struct checkpoint **checkpoints; /* by id */
    size_t n_checkpoints;
    size_t n_calls, n_nodes;           /* numbers of committed calls, and of messages of the trie */
    size_t copied_calls;               /* number of first calls that a fork or an import copied */
    const struct json *metadata;       /* or NULL */
    const struct reward *reward;       /* the session's own */
    int32_t rollout, group_size;       /* -1, 0: not set */
    bool has_images;                   /* some message has a picture */
    bool wants_support;                /* option sampling_support */
    bool wants_indexer;                /* option indexer_topk */
    bool compare_tokens, ignore_tools; /* how its timelines are merged */
    bool has_finished, finished;       /* members of the complete request */
    bool told_stop; /* a request named the cause of its end, or a budget refused a call */
    uint32_t rollbacks;
    uint64_t rollback_dropped;
    const uint64_t *forks; /* number of answers, by enum session_cause */
};

struct session_view session_view(const struct session *s);

/* Returns the temperature of the call that made a checkpoint. */
float checkpoint_temperature(const struct session *s, const struct checkpoint *t);
uint32_t checkpoint_prompt_tokens(const struct session *s, const struct checkpoint *t);

/* Returns the number of messages of its path, including its own. Returns 0 for a completion. */
uint32_t checkpoint_messages(const struct checkpoint *t);

/* Return the checkpoint of a response, and the response's own reward. Return NULL if there is
 * none. */
struct checkpoint *session_response(const struct session *s, struct str response_id);
const struct reward *session_response_reward(const struct session *s, struct str response_id);

/* Notes that an export's merge repaired and lost so many answers: the maximum over all exports is
 * kept. Returns by how much each exceeds the earlier maximum. */
void session_record_merge(struct session *s, uint32_t repaired, uint32_t lost,
                          uint32_t ret_news[2]);

/* Notes the result of an export's audit of the path to t, a checkpoint of s. */
struct checkpoint_audit;
void session_record_audit(struct session *s, struct checkpoint *t,
                          const struct checkpoint_audit *a);

/* Unpins the session, for callers that do not have the store. */
void session_unpin_view(struct session *s);

#endif
