#include "worker/export/formats/view_turns.h"

#include <math.h>
#include <string.h>

#include "common/codec/json.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/logprob_report.h"

/* Returns the tools of the answered request; NULL: it had none, or is a completion. */
static const struct json *offered_tools(const struct trajectory_turn *turn)
{
    const struct message_node *node = turn->checkpoint->node;

    return node ? node->env->tools : NULL;
}

void view_write_tools(struct export *x, const struct trajectory *t)
{
    struct json_out o = json_out_to(tensors_meta(x, "tools"));

    json_out_arr(&o);
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct json *tools = offered_tools(&t->turns[i]);

        if (i > 0 && tools == offered_tools(&t->turns[i - 1]))
            continue;
        json_out_obj(&o);
        json_out_member_i64(&o, "turn", i);
        json_out_key(&o, "tools");
        if (tools)
            json_out_value(&o, tools);
        else
            json_out_raw(&o, STR("[]"));
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
}

float *view_collect_logprobs(struct export *x, const struct trajectory *t)
{
    float *ret = NULL;

    for (uint32_t i = 0; i < t->n_turns && !t->text; i++) {
        const struct trajectory_turn *turn = &t->turns[i];
        const struct logprob_report *r = checkpoint_report(turn->checkpoint, x->options.reported);

        if (!r)
            continue;
        if (!ret) {
            ret = arena_alloc(&x->arena, t->n * sizeof(*ret));
            for (uint32_t k = 0; k < t->n; k++)
                ret[k] = NAN;
        }
        memcpy(ret + turn->start, r->logprobs,
               MIN_OF(turn->end - turn->start, turn->checkpoint->n) * sizeof(*ret));
    }
    return ret;
}

static bool lists_version(struct str list, struct str version)
{
    struct buf text = {0};
    bool found;

    json_write_string(&text, version);
    found = str_find(list, buf_str(&text), 0) != SIZE_MAX;
    buf_done(&text);
    return found;
}

void view_write_versions(struct export *x, const struct trajectory *t)
{
    struct buf *list = tensors_meta(x, "reported_versions");

    if (list->len == 0)
        buf_add_c(list, '[');
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct logprob_report *r = checkpoint_report(t->turns[i].checkpoint, (struct str){0});

        for (; r; r = r->older) {
            if (lists_version(buf_str(list), r->version))
                continue;
            if (list->len > 1)
                buf_add_c(list, ',');
            json_write_string(list, r->version);
        }
    }
}
