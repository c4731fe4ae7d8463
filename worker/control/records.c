/* GET /sessions/{id}, with ?records=1 every call's record too: a sliced answer. Every call's prompt
 * is told anew, so that records grow with the square of the session; without them the state grows
 * with its answers. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/control/handlers.h"
#include "worker/control/sliced_answer.h"
#include "worker/ledger/ledger.h"
#include "worker/session/telling.h"

struct recounting {
    struct sliced_answer answer;
    struct session_telling telling;
};

static int step(struct sliced_answer *a, struct err *e)
{
    return session_tell(&CONTAINER_OF(a, struct recounting, answer)->telling, e);
}

static void recounting_free(struct sliced_answer *a)
{
    struct recounting *v = CONTAINER_OF(a, struct recounting, answer);

    session_tell_done(&v->telling);
    free(v);
}

void state_send(struct service_request *r, struct session *s, bool records)
{
    struct recounting *v = mem_zalloc(sizeof(*v));

    v->answer = (struct sliced_answer){
        .broken = "a session's state cannot be told", .step = step, .free = recounting_free};
    v->telling = (struct session_telling){
        .session = s, .records = records, .out = json_out_to(&v->answer.out)};
    sliced_answer_send(&v->answer, r, s);
}
