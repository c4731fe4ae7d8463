/* POST /attempts/renew: an executor renews its leases. The answer names the attempts that the
 * executor must end. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "dispatcher/desk.h"
#include "dispatcher/executor_name.h"

struct renewal {
    char executor[EXECUTOR_MAX + 1];
    size_t n;
    char (*ids)[ATTEMPT_ID_LEN + 1];
};

/* Returns why the executor must end the attempt, or NULL. */
static const char *kill_reason(const struct desk *d, const struct renewal *r, const char *id)
{
    const struct attempt *a = book_attempt(&d->book, str_cstr(id));

    if (!a || strcmp(a->executor, r->executor) != 0)
        return "unknown";
    if (a->lost)
        return "lease_lost";
    if (a->ended)
        return "cancelled";
    return a->kill;
}

static bool renew_answer(struct poll *p, bool empty_too)
{
    const struct renewal *r = p->ctx;
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    size_t n = 0;

    json_out_obj(&o);
    json_out_member_arr(&o, "kill");
    for (size_t i = 0; i < r->n; i++) {
        const char *why = kill_reason(p->desk, r, r->ids[i]);

        if (!why)
            continue;
        json_out_obj(&o);
        json_out_member_cstr(&o, "attempt_id", r->ids[i]);
        json_out_member_cstr(&o, "reason", why);
        json_out_end_obj(&o);
        n++;
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    if (n > 0 || empty_too)
        desk_json(p->x, 200, &body);
    buf_done(&body);
    return n > 0 || empty_too;
}

static bool check_renewal(struct poll *p)
{
    return renew_answer(p, false);
}

static void renew_over(struct poll *p)
{
    (void)renew_answer(p, true);
}

static void renew_drop(struct poll *p)
{
    struct renewal *r = p->ctx;

    free(r->ids);
    free(r);
}

static int read_renewal(struct desk_request *r, struct renewal *n, uint64_t *wait_ms, struct err *e)
{
    static const char *const names[] = {"executor", "attempts", "wait_s"};
    struct field_reader f = {.body = r->body, .e = e};
    const struct json *ids = json_get(r->body, "attempts");
    double wait_s = 0;

    if (fields_known(&f, "", names, ARRAY_LEN(names)) || executor_name_read(r, n->executor, e) ||
        fields_number(&f, "wait_s", 0, EXECUTOR_WAIT_MAX_S, &wait_s))
        return -1;
    *wait_ms = (uint64_t)(wait_s * 1000);
    if (!json_is(ids, JSON_ARRAY) || ids->n > RENEWAL_ATTEMPTS_MAX)
        return err_field(e, "attempts", "attempts must be a list of at most %d ids",
                         RENEWAL_ATTEMPTS_MAX);
    n->ids = mem_calloc(ids->n + 1, sizeof(*n->ids));
    for (uint32_t i = 0; i < ids->n; i++) {
        struct str id = json_string(json_at(ids, i));

        if (id.len != ATTEMPT_ID_LEN)
            return err_field(e, "attempts", "attempts[%u] is no attempt's id", i);
        memcpy(n->ids[n->n++], id.p, id.len);
    }
    return 0;
}

void attempts_renew(struct desk_request *r)
{
    static const struct poll_kind kind = {check_renewal, renew_over, renew_drop};
    struct renewal *n = mem_zalloc(sizeof(*n));
    struct err e = {0};
    uint64_t wait_ms = 0;

    if (read_renewal(r, n, &wait_ms, &e)) {
        free(n->ids);
        free(n);
        desk_error(r->x, &e);
        return;
    }
    for (size_t i = 0; i < n->n; i++) {
        struct attempt *a = book_attempt(&r->desk->book, str_cstr(n->ids[i]));

        if (a && !a->ended && strcmp(a->executor, n->executor) == 0)
            a->lease_due_ms = clock_ms() + wait_ms + desk_lease_ms(r->desk);
    }
    poll_start(r->desk, r->x, &kind, n, wait_ms);
}
