/* Answers that wait for a replica (replica_round.h). Their memory is the round's own. */
#include "common/fleet/replica_round.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/fleet/resp.h"

struct unconfirmed {
    void *call;
    struct store_answer a;         /* `refused` and `why` are copies */
    struct store_refusal *refused; /* owned */
    char *why;                     /* owned */
};

struct replica_round {
    void (*answer)(void *call, struct store_answer *a);
    VEC(struct unconfirmed) answers;
};

struct replica_round *replica_round_new(void (*answer)(void *call, struct store_answer *a))
{
    struct replica_round *r = mem_zalloc(sizeof(*r));

    r->answer = answer;
    return r;
}

void replica_round_add(struct replica_round *r, void *call, const struct store_answer *a)
{
    struct unconfirmed *u = vec_push(&r->answers);

    *u = (struct unconfirmed){.call = call, .a = *a};
    if (a->n_refused > 0) {
        u->refused = mem_calloc(a->n_refused, sizeof(*u->refused));
        memcpy(u->refused, a->refused, a->n_refused * sizeof(*u->refused));
    }
    if (a->why)
        u->why = mem_strdup(a->why);
    u->a.refused = u->refused;
    u->a.why = u->why;
}

/* The reply to WAIT: the number of replicas that have the records. */
static void on_records_replicated(void *ctx, const struct resp *reply, const char *why)
{
    struct replica_round *r = ctx;
    bool confirmed = reply && reply->number > 0;

    for (size_t i = 0; i < r->answers.n; i++) {
        struct unconfirmed *u = &r->answers.at[i];
        struct store_answer lost = {.verdict = STORE_LOST,
                                    .why = reply ? "no replica has confirmed the records" : why};

        r->answer(u->call, confirmed ? &u->a : &lost);
        free(u->refused);
        free(u->why);
    }
    vec_done(&r->answers);
    free(r);
}

void replica_wait(struct redis_link *link, uint64_t limit_ms, redis_reply_fn fn, void *ctx)
{
    struct buf *out = redis_link_begin(link);

    resp_begin_command(out, 3);
    resp_add_word(out, STR("WAIT"));
    resp_add_number(out, 1);
    resp_add_number(out, limit_ms);
    redis_link_end(link, fn, ctx);
}

void replica_round_send(struct replica_round *r, struct redis_link *link, uint64_t limit_ms)
{
    replica_wait(link, limit_ms, on_records_replicated, r);
}
