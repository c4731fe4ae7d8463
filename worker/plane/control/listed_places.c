#include "worker/plane/control/listed_places.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/vec.h"
#include "common/fleet/place_table.h"
#include "common/proc/heritage.h"

static int compare_indexes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

uint32_t *listed_places_find(const struct heritage *h, struct arena *a, size_t *ret_n)
{
    static VEC(uint32_t) found; /* keeps its memory */

    uint32_t *ret, index;

    vec_clear(&found);
    for (size_t at = 0; place_table_next_had(h->fleet, &at, &index);)
        if (index != FLEET_DISPATCHER)
            *vec_push(&found) = index;
    *ret_n = found.n;
    ret = arena_calloc(a, found.n + 1, sizeof(*ret));
    if (found.n == 0)
        return ret;
    memcpy(ret, found.at, found.n * sizeof(*ret));
    qsort(ret, found.n, sizeof(*ret), compare_indexes);
    return ret;
}

enum listed_by listed_places_owner(const struct heritage *h, uint32_t index, struct fleet_node *ret,
                                   uint32_t *ret_slot)
{
    struct fleet_place place;

    if (place_table_is_vacant(h->fleet, index))
        return LISTED_NOT;
    if (!place_table_find(h->fleet, index, &place))
        return place_table_own_epoch(h->fleet, index) != 0 ? LISTED_BY_SELF : LISTED_BY_NOBODY;
    if (place.node == place_table_self(h->fleet) && place.node != FLEET_NO_NODE)
        return LISTED_BY_SELF;
    *ret_slot = place.node;
    if (!place_table_node(h->fleet, place.node, ret))
        return LISTED_BY_NOBODY;
    return ret->state == FLEET_LOST ? LISTED_BY_LOST : LISTED_BY_OTHER;
}
