#include "common/serve/reach.h"

#include "common/base/arena.h"
#include "common/codec/query.h"
#include "common/serve/exchange.h"

enum reach reach_of_request(const struct exchange *x)
{
    struct arena a = {0};
    struct str query = exchange_query(x), here = query_get(&a, query, "here");
    enum reach reach = REACH_FLEET;

    if (query_get(&a, query, "local").p)
        reach = REACH_PROCESS;
    else if (here.p && !str_eq_c(here, "0") && !str_eq_c(here, "off") && !str_eq_c(here, "false"))
        reach = REACH_NODE;
    arena_done(&a);
    return reach;
}
