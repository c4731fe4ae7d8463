/* Marks sessions of a place that was claimed in doubt (second_copy.h): each after it was read. */
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/fleet/copy_internal.h"
#include "common/fleet/place_table.h"

void copy_mark_doubt(struct copy_log *l)
{
    struct copy_place *p = l->place;
    const struct second_copy_options *o = &p->copy->o;
    int rc = 0;

    if (l->doubted && !l->lost && o->mark)
        rc = o->mark(o->ctx, copy_log_id(l), p->doubt_ms, p->epoch);
    l->doubted = rc < 0;
    p->n_marked += rc > 0;
}

void copy_mark_all(struct copy_place *p)
{
    uint64_t now_ms = loop_now_ms(p->copy->o.loop);
    struct map_slot *slot;

    if (p->state != COPY_OPEN || p->n_unread > 0 || now_ms < p->mark_ms)
        return;
    for (size_t at = 0; (slot = map_next(&p->copy->logs, &at));) {
        struct copy_log *l = slot->value;

        if (l->place == p && l->doubted)
            copy_mark_doubt(l);
        if (l->place == p && l->doubted) {
            p->mark_ms = now_ms + COPY_FULL_MS;
            return;
        }
    }
    if (p->copy->o.mark)
        log_info(NULL, "sessions that may lack answers are marked",
                 place_table_log("place", p->index), LOG_U("sessions", p->n_marked));
    p->doubt_ms = p->n_marked = 0;
    p->level = p->n_behind == 0; /* whole after the store has the marks */
}
