/* GET /attempts: running attempts, the oldest first. */
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "dispatcher/desk.h"

enum { RUNNING_DEFAULT = 100, RUNNING_MAX = 1000 };

static void put_attempt(const struct attempt *a, uint64_t now_ms, struct json_out *o)
{
    const struct group *g = a->rollout->group;
    uint64_t since_ms = now_ms > a->claimed_at_ms ? now_ms - a->claimed_at_ms : 0;

    json_out_obj(o);
    json_out_member_cstr(o, "attempt_id", a->id);
    json_out_member_str(o, "group", g->spec.id);
    json_out_member_i64(o, "rollout", a->rollout->index);
    json_out_member_i64(o, "attempt", a->number);
    json_out_member_cstr(o, "runner", g->runner->name);
    json_out_member_cstr(o, "executor", a->executor);
    json_out_member_cstr(o, "session_id", a->session);
    json_out_member_double(o, "claimed_at", (double)a->claimed_at_ms / 1000);
    json_out_member_double(o, "running_s", (double)since_ms / 1000);
    json_out_end_obj(o);
}

/* The book lists attempts in the order of their claims. */
void attempts_list(struct desk_request *r)
{
    struct str given = desk_query(r, "limit");
    const struct attempt *a;
    uint64_t left = RUNNING_DEFAULT;
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    struct err e = {0};

    if (given.p && (str_to_u64(given, RUNNING_MAX, &left) || left == 0)) {
        (void)err_field(&e, "limit", "limit must be an integer from 1 to %d, not %.*s", RUNNING_MAX,
                        (int)MIN_OF(given.len, 40), given.p);
        desk_error(r->x, &e);
        return;
    }
    json_out_obj(&o);
    json_out_member_arr(&o, "attempts");
    LIST_EACH(&r->desk->book.running, a, struct attempt, entry) {
        if (left-- == 0)
            break;
        put_attempt(a, clock_wall_ms(), &o);
    }
    json_out_end_arr(&o);
    desk_put_unreachable(r->desk, &o);
    json_out_end_obj(&o);
    desk_json(r->x, 200, &body);
    buf_done(&body);
}
