/* Writes a chain for trainers: an item of `active_chains` in a session's state. Its tip hash
 * identifies the place in the forest where the chain ends: chains of equal messages have equal
 * hashes, and a chain that grows gets a new hash. */
#include <stdio.h>

#include "common/codec/json.h"
#include "common/codec/sha256.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/forest/policy.h"
#include "worker/session/store/store.h"

static void put_tip_hash(const struct session *s, const struct message_node *tip,
                         struct json_out *o)
{
    char hex[SHA256_HEX_LEN + 1], place[48];
    struct sha256 *h = sha256_begin();
    int n = snprintf(place, sizeof(place), " %u %u", tip->env->id, tip->id);

    sha256_add(h, s->id);
    sha256_add(h, str_of(place, (size_t)n));
    sha256_end(h, hex);
    json_out_member_str(o, "tip_hash", str_cstr(hex));
}

void chain_put(const struct session *s, const struct chain *c, struct json_out *o)
{
    if (c->closed)
        return;
    json_out_obj(o);
    json_out_member_i64(o, "id", c->id + (int64_t)1);
    put_tip_hash(s, c->head->node, o);
    json_out_member_str(o, "response_id", c->head->response_id);
    json_out_member_i64(o, "num_tokens", c->head->total);
    json_out_key(o, "in_flight");
    if (c->reserved)
        json_out_i64(o, (int64_t)c->reserved->pub.call);
    else
        json_out_null(o);
    json_out_end_obj(o);
}
