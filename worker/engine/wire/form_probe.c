/* An attempt like any other; its answer is only looked at. */
#include "worker/engine/wire/form_probe.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/sampling.h"
#include "worker/engine/engine_request.h"
#include "worker/engine/wire/attempt.h"

struct form_probe {
    struct sampling sampling;
    struct engine_request req;
    void *attempt;
};

/* Any id will do, and every vocabulary has the first. */
static const int32_t prompt[] = {0};

static void forget(struct remote *r)
{
    free(r->form);
    r->form = NULL;
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    (void)ctx, (void)d; /* a whole answer was asked for */
}

static void on_done(void *ctx, const struct engine_result *res)
{
    (void)res;
    forget(ctx);
}

static void on_failed(void *ctx, const struct err *e, enum engine_failure how)
{
    struct remote *r = ctx;

    (void)how;
    log_info(NULL, "an engine did not show what its answers have", LOG_T("engine", r->target->name),
             LOG_T("why", e->text));
    forget(r);
}

static const struct engine_attempt_events events = {on_delta, on_done, on_failed};

void form_probe_begin(struct remote *r)
{
    struct form_probe *p;

    if (r->form)
        return;
    p = r->form = mem_zalloc(sizeof(*p));
    p->sampling = (struct sampling)SAMPLING_DEFAULTS;
    p->sampling.max_tokens = 1;
    p->req = (struct engine_request){
        .session_id = STR("form-probe"), .prompt = {prompt, 1}, .sampling = &p->sampling};
    p->attempt = remote_start(r, &p->req, &events, r);
}

void form_probe_cancel(struct remote *r)
{
    if (r->form)
        remote_cancel(r->form->attempt);
    forget(r);
}
