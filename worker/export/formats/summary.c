/* Format none: the summary of a session, without its trajectories. They are still built and
 * checked. So a session that was closed with this format can be exported in every other one. */
#include "common/codec/json.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/export_reward.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/session_view.h"
#include "worker/session/store/stop.h"

static void none_begin(struct export *x, struct buf *out)
{
    (void)x;
    buf_add_c(out, '{');
}

static void none_end(struct export *x, struct buf *out)
{
    const struct reward *r = x->told;
    struct json_out o = json_out_to(out);

    json_out_member_str(&o, "session_id", session_view(x->session).id);
    json_out_member_cstr(&o, "phase", session_phase_name(x->session));
    session_put_stop(x->session, &o);
    export_put_reward(x, "reward", &o);
    json_out_member_obj(&o, "reward_info");
    for (size_t i = 0; i < r->members.n; i++) {
        json_out_key_str(&o, r->members.at[i].key);
        json_out_raw(&o, r->members.at[i].json);
    }
    json_out_end_obj(&o);
    json_out_key(&o, "summary");
    native_write_summary(x, &o);
    buf_add_c(out, '}');
}

const struct format format_none = {
    .passes = 1, .text_too = true, .begin = none_begin, .end = none_end};
