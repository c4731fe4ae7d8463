/* miles builds `lifecycle` from records of calls, and `tito_session_mismatch` from a comparison by
 * segments (miles_metadata.h). Here the times are those of the answers. The mismatch is the drift
 * of the export, which has the first difference and a count: one entry of miles' form. */
#include "worker/export/formats/miles_metadata.h"

#include <stdio.h>

#include "common/codec/json.h"
#include "worker/export/build/drift.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"

static void put_turn(const struct trajectory *t, uint32_t i, struct json_out *o)
{
    const struct checkpoint *c = t->turns[i].checkpoint;
    uint64_t engine_ms = c->engine_us / 1000,
             all_ms = (c->queue_us + c->engine_us + c->gateway_us) / 1000;

    json_out_obj(o);
    json_out_member_seconds(o, "t0", c->at_ms - engine_ms);
    json_out_member_seconds(o, "t1", c->at_ms);
    json_out_member_i64(o, "turn", i + (int64_t)1);
    json_out_member_seconds(o, "req_ts", c->at_ms - all_ms);
    if (i > 0)
        json_out_member_seconds(o, "prev_t1", t->turns[i - 1].checkpoint->at_ms);
    json_out_end_obj(o);
}

void miles_put_lifecycle(const struct trajectory *t, struct json_out *o)
{
    json_out_key(o, "lifecycle");
    if (t->n_turns == 1) {
        put_turn(t, 0, o);
        return;
    }
    json_out_arr(o);
    for (uint32_t i = 0; i < t->n_turns; i++)
        put_turn(t, i, o);
    json_out_end_arr(o);
}

void miles_put_mismatch(const struct drift *d, struct json_out *o)
{
    char detail[80];

    if (!d->audited)
        return;
    json_out_member_arr(o, "tito_session_mismatch");
    if (d->count > 0) {
        (void)snprintf(detail, sizeof(detail), "%u differences, the first at token %u", d->count,
                       d->position);
        json_out_obj(o);
        json_out_member_str(o, "type", str_cstr(drift_kind_name(d->first)));
        json_out_member_i64(o, "segment_index", -1);
        json_out_member_str(o, "expected_text", STR(""));
        json_out_member_str(o, "actual_text", STR(""));
        json_out_member_str(o, "detail", str_cstr(detail));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}
