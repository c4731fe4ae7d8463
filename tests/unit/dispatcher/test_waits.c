#include "dispatcher/waits.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/fleet/place_table.h"
#include "dispatcher/book.h"
#include "testing.h"

static bool names_lost_node(const struct book *b)
{
    struct buf why = {0};
    bool found;

    waits_no_queue(b, STR("q"), &why);
    buf_add_c(&why, 0);
    found = strstr(why.p, "a lost node alone may have had its groups") != NULL;
    buf_done(&why);
    return found;
}

/* Other nodes may mark the place while a request waits. */
TEST(waits, groups_of_a_lost_node_are_named_from_the_mark_on)
{
    struct place_table *t = place_table_new();
    struct fleet_place place = {.index = FLEET_DISPATCHER, .node = FLEET_NO_NODE, .epoch = 7};
    struct book b;

    book_init(&b);
    cr_assert_not(names_lost_node(&b), "there is no fleet");
    b.places = t;
    cr_assert(place_table_set(t, &place));
    cr_assert_not(names_lost_node(&b));
    place.taken = true;
    cr_assert(place_table_set(t, &place));
    cr_assert(names_lost_node(&b));
    book_done(&b);
    place_table_free(t);
}
