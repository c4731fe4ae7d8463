#include "worker/session/store/session_view.h"

#include "common/base/attrs.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/store.h"

struct session_view session_view(const struct session *s)
{
    return (struct session_view){
        .id = s->id,
        .checkpoints = s->forest.checkpoints.at,
        .n_checkpoints = s->forest.checkpoints.n,
        .n_calls = s->forest.calls.n,
        .n_nodes = s->forest.nodes.n,
        .copied_calls = s->copied_calls,
        .metadata = s->options.metadata,
        .reward = &s->reward,
        .rollout = s->options.rollout,
        .group_size = s->options.group_size,
        .has_images = s->forest.has_images,
        .wants_support = s->options.wants.support,
        .wants_indexer = s->options.wants.indexer,
        .compare_tokens = s->options.compare_tokens,
        .ignore_tools = s->options.ignore_tools,
        .has_finished = s->has_finished,
        .finished = s->finished,
        .told_stop = s->stated != SESSION_STOP_NONE || s->budget.p,
        .rollbacks = s->rollbacks,
        .rollback_dropped = s->rollback_dropped,
        .forks = s->forks,
    };
}

float checkpoint_temperature(const struct session *s, const struct checkpoint *t)
{
    return s->forest.calls.at[t->call]->temperature;
}

uint32_t checkpoint_prompt_tokens(const struct session *s, const struct checkpoint *t)
{
    return s->forest.calls.at[t->call]->prompt_tokens;
}

uint32_t checkpoint_messages(const struct checkpoint *t)
{
    return t->node ? t->node->depth : 0;
}

struct checkpoint *session_response(const struct session *s, struct str response_id)
{
    return map_get(&s->forest.by_response, response_key(response_id));
}

const struct reward *session_response_reward(const struct session *s, struct str response_id)
{
    return response_id.p ? reward_find(s, response_id) : NULL;
}

void session_record_merge(struct session *s, uint32_t repaired, uint32_t lost, uint32_t ret_news[2])
{
    ret_news[0] = repaired - MIN_OF(repaired, s->merge_repaired);
    ret_news[1] = lost - MIN_OF(lost, s->merge_lost);
    s->merge_repaired += ret_news[0];
    s->merge_lost += ret_news[1];
}

void session_record_audit(struct session *s, struct checkpoint *t, const struct checkpoint_audit *a)
{
    session_count_leaf(s, t, -1);
    t->audit = *a;
    session_count_leaf(s, t, 1);
}

void session_unpin_view(struct session *s)
{
    session_unpin(s->store, s);
}
