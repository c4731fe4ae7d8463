/* GET /sessions/{id}?records=1. Every call's prompt is told anew, so that it grows with the square
 * of the session: a sliced answer. */
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
    free(CONTAINER_OF(a, struct recounting, answer));
}

void records_get(struct service_request *r, struct session *s)
{
    struct recounting *v = mem_zalloc(sizeof(*v));

    v->answer = (struct sliced_answer){
        .broken = "a session's records cannot be told", .step = step, .free = recounting_free};
    v->telling =
        (struct session_telling){.session = s, .records = true, .out = json_out_to(&v->answer.out)};
    sliced_answer_send(&v->answer, r, s);
}
