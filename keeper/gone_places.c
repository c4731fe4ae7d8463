/* Places that the store had and has no longer (fleet_view.h). */
#include <stdlib.h>

#include "common/base/map.h"
#include "keeper/fleet_view.h"

void fleet_view_note_emptied(struct fleet_view *v)
{
    v->emptied_round = v->round;
}

/* The list may have begun before the store was emptied, or have come before that was noted. */
bool fleet_view_has_lost(const struct fleet_view *v, struct seen_place *gone)
{
    gone->lost = gone->lost || (v->emptied_round > 0 && gone->gone_round + 1 >= v->emptied_round &&
                                gone->gone_round <= v->emptied_round + 2);
    return gone->lost;
}

void fleet_view_drop_gone(struct fleet_view *v, struct seen_place *gone)
{
    (void)map_take(&v->gone, str_cstr(gone->key));
    free(gone);
}

void fleet_view_keep_gone(struct fleet_view *v, struct seen_place *p, uint64_t now_ms)
{
    struct seen_place *before = map_get(&v->gone, str_cstr(p->key));

    if (before)
        fleet_view_drop_gone(v, before);
    p->gone_ms = now_ms;
    p->gone_round = v->round;
    (void)map_set(&v->gone, str_cstr(p->key), p);
}
