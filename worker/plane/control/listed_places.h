/* The places of the fleet that a list goes through, and the node that lists each of them now. */
#ifndef RG_CONTROL_LISTED_PLACES_H
#define RG_CONTROL_LISTED_PLACES_H

#include <stddef.h>
#include <stdint.h>

struct arena;
struct fleet_node;
struct heritage;

/* Returns the indexes of all places that may have sessions, in the arena. They ascend. */
uint32_t *listed_places_find(const struct heritage *h, struct arena *a, size_t *ret_n);

enum listed_by {
    LISTED_BY_NOBODY, /* no node has the place now */
    LISTED_BY_SELF,
    LISTED_BY_OTHER, /* a different node */
    LISTED_BY_LOST,  /* a node that is lost */
    LISTED_NOT       /* the place has no sessions */
};

/* Finds the node that lists the place. LISTED_BY_OTHER and LISTED_BY_LOST: writes it and its slot.
 */
enum listed_by listed_places_owner(const struct heritage *h, uint32_t index, struct fleet_node *ret,
                                   uint32_t *ret_slot);

#endif
