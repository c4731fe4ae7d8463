/* Writes the members of a trajectory that follow its arrays, in their order. A long history has
 * megabytes of them, so the loops pause. */
#include "common/codec/json.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/pictures_layout.h"
#include "worker/session/store/group.h"

static void begin_members(struct export *x, const struct trajectory *t, struct json_out *o)
{
    group_put(x->session, o);
    json_out_member_i64(o, "num_turns", t->n_turns);
}

void native_write_turn(const struct trajectory *t, uint32_t i, struct json_out *o)
{
    json_out_obj(o);
    native_write_turn_members(t, &t->turns[i], o);
    json_out_end_obj(o);
}

void native_write_brief(struct export *x, const struct trajectory *t, struct json_out *o)
{
    begin_members(x, t, o);
    images_write(t, o);
    native_write_outcome(x, t, o);
}

void native_write_rest(struct export *x, const struct trajectory *t, struct json_out *o)
{
    bool answered = false;

    begin_members(x, t, o);
    json_out_member_arr(o, "messages");
    x->prompt_at = o->b->len;
    x->prompt_bytes = 0;
    for (uint32_t i = 0; i < t->messages->n && export_pause(x); i++) {
        native_write_message(t, i, o);
        answered = answered || t->generated[i];
        if (!answered)
            x->prompt_bytes = o->b->len - x->prompt_at;
    }
    json_out_end_arr(o);
    images_write(t, o);
    json_out_member_arr(o, "turns");
    for (uint32_t i = 0; i < t->n_turns && export_pause(x); i++)
        native_write_turn(t, i, o);
    json_out_end_arr(o);
    native_write_outcome(x, t, o);
}
