/*
 * struct session_view: what exports may read of a session beyond session.h, without the body of
 * struct session, which stays in this folder. Take a new view each time, since the session may
 * change between two.
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

/* All borrowed from the session. */
struct session_view {
    struct str id;
    struct checkpoint **checkpoints; /* by id */
    size_t n_checkpoints;
    size_t n_calls, n_nodes;           /* committed calls; messages of the trie */
    const struct json *metadata;       /* or NULL */
    const struct reward *reward;       /* the session's own */
    int32_t rollout, group_size;       /* -1, 0: not said */
    bool has_images;                   /* some message has a picture */
    bool wants_support;                /* options sampling_support and */
    bool wants_indexer;                /* indexer_topk */
    bool compare_tokens, ignore_tools; /* how its timelines merge */
    bool has_finished, finished;       /* members of the complete request */
    bool told_stop;        /* a request named the cause of its end, or a budget refused a call */
    uint32_t lost_records; /* of its journal, at least */
    uint32_t rollbacks;
    uint64_t rollback_dropped;
    const uint64_t *forks; /* by enum session_cause */
};

struct session_view session_view(const struct session *s);

/* Returns the temperature of the call that made a checkpoint. */
float checkpoint_temperature(const struct session *s, const struct checkpoint *t);
uint32_t checkpoint_prompt_tokens(const struct session *s, const struct checkpoint *t);

/* The messages of its path, its own the last; 0: a completion. */
uint32_t checkpoint_messages(const struct checkpoint *t);

/* The checkpoint of a response, and the response's own reward; NULL: there is none. */
struct checkpoint *session_response(const struct session *s, struct str response_id);
const struct reward *session_response_reward(const struct session *s, struct str response_id);

/* An export's merge repaired and lost so many answers: the most that any did is kept. Returns how
 * many of each are more than before. */
void session_record_merge(struct session *s, uint32_t repaired, uint32_t lost,
                          uint32_t ret_news[2]);

/* What an export's audit found of the path to t, a checkpoint of s. */
struct checkpoint_audit;
void session_record_audit(struct session *s, struct checkpoint *t,
                          const struct checkpoint_audit *a);

/* Unpins the session, for callers without the store. */
void session_unpin_view(struct session *s);

#endif
