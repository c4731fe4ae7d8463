/* Writes and applies rewards in records (reward.h): one object, whose members are each kept as JSON
 * text. */
#include "common/base/limits.h"
#include "worker/session/store/reward.h"

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/lookup.h"
#include "common/codec/json.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/store.h"

/* Returns the id under which the reward of a response is kept: that of the answer that represents
 * the response's. */
static struct str kept_under(const struct session *s, struct str response_id)
{
    struct checkpoint *t = map_get(&s->forest.by_response, response_key(response_id));
    struct str shown = t ? checkpoint_shown(t)->response_id : (struct str){0};

    return shown.p ? shown : response_id;
}

struct reward *reward_find(const struct session *s, struct str response_id)
{
    if (s->checkpoint_rewards.n == 0) /* as in most sessions */
        return NULL;
    return map_get(&s->rewards_by_response, response_key(kept_under(s, response_id)));
}

static void keep_reward(struct session *s, struct reward *r)
{
    (void)map_set(&s->rewards_by_response, response_key(r->response_id), r);
}

/* Makes the reward on first use. */
static struct reward *session_reward(struct session *s, struct str response_id)
{
    struct reward *r;

    if (!response_id.p)
        return &s->reward;
    r = reward_find(s, response_id);
    if (!r) {
        r = ARENA_NEW(&s->forest.arena, struct reward);
        r->response_id = forest_text(&s->forest, kept_under(s, response_id));
        *vec_push(&s->checkpoint_rewards) = r;
        keep_reward(s, r);
    }
    return r;
}

void reward_move(struct session *s, struct str from, struct str to)
{
    struct reward *r;

    if (!from.p || !to.p || map_get(&s->rewards_by_response, response_key(to)))
        return;
    r = map_take(&s->rewards_by_response, response_key(from));
    if (!r)
        return;
    r->response_id = to;
    keep_reward(s, r);
}

/* Lists the members that a reward already has. */
static void know_members(const struct reward *r, struct lookup *known)
{
    for (uint32_t i = 0; i < r->members.n; i++)
        (void)lookup_add(known, r->members.at[i].key, i);
}

/* Counts the members of `more` that the reward does not have. */
static size_t fresh_members(const struct reward *r, const struct json *more)
{
    struct arena tmp = {0};
    struct lookup known = {.arena = &tmp};
    size_t n = 0;

    know_members(r, &known);
    for (uint32_t i = 0; i < more->n; i++)
        n += lookup_get(&known, json_string(&more->members[i].key)) == LOOKUP_NONE;
    arena_done(&tmp);
    return n;
}

/* Members are limited because each record of a reward reads all of them. */
int reward_check_members(const struct session *s, struct str response_id, const struct json *more,
                         struct err *e)
{
    const struct reward *r = response_id.p ? reward_find(s, response_id) : &s->reward;
    size_t had = r ? r->members.n : 0, fresh = more->n;

    if (had + fresh > SESSION_MEMBERS_MAX && had > 0)
        fresh = fresh_members(r, more);
    if (fresh == 0 || had + fresh <= SESSION_MEMBERS_MAX)
        return 0;
    return err_field(e, "reward_info",
                     "reward_info has %zu members that are not on record beside the %zu that are; "
                     "a reward may have %d",
                     fresh, had, SESSION_MEMBERS_MAX);
}

/* Sets a member; the last value counts. `known` has the members from before the record; the
 * record's own keys are distinct. */
static void set_member(struct session *s, struct reward *r, const struct lookup *known,
                       struct str key, struct str json)
{
    uint32_t at = key.p ? lookup_get(known, key) : LOOKUP_NONE;

    if (!key.p)
        return;
    if (at != LOOKUP_NONE) {
        r->members.at[at].json = forest_str(&s->forest, json);
        return;
    }
    *vec_push(&r->members) =
        (struct reward_member){forest_str(&s->forest, key), forest_str(&s->forest, json)};
}

int reward_apply(struct session *s, struct str response_id, struct str text, struct err *e)
{
    struct arena tmp = {0};
    struct buf b = {0};
    const struct json *v;
    int rc = json_parse(&tmp, text.p ? text : STR(""), &v, e);

    if (rc == 0 && v->kind == JSON_OBJECT) {
        struct reward *r = session_reward(s, response_id);
        struct lookup known = {.arena = &tmp};

        know_members(r, &known);
        for (uint32_t i = 0; i < v->n; i++) {
            buf_clear(&b);
            json_write(&b, &v->members[i].value);
            set_member(s, r, &known, json_string(&v->members[i].key), buf_str(&b));
        }
    } else {
        rc = err_set(e, ERR_IO, "session record: reward_info is no object");
    }
    buf_done(&b);
    arena_done(&tmp);
    return rc;
}
