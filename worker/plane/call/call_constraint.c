/* Constraints of an answer, and other long members of the sampling, in the form that engines
 * get. */

#include "worker/engine/pool/ready_texts.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_images.h"
#include "worker/plane/call/id_rules.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sampling_merge.h"
#include "worker/text/model/model.h"

int model_call_constrain(struct model_call *t, struct err *e)
{
    if (t->constrains && merge_constraint(&t->arena, t->in.req, t->kinds, t->sampling, e))
        return -1;
    t->id_rules = id_rules_new(&t->arena, t->sampling, model_info(t->env->model)->vocab_size);
    t->ready = ARENA_NEW(&t->arena, struct ready_texts);
    ready_texts_make(t->ready, &t->arena, t->sampling, call_images_banned(t));
    return 0;
}
