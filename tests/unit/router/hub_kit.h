/* The end of a router's hub in unit tests. */
#ifndef RG_UNIT_HUB_KIT_H
#define RG_UNIT_HUB_KIT_H

#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "router/clients.h"
#include "router/hub.h"
#include "router/lendings.h"
#include "router/upstreams.h"

/* Closes all clients and frees the hub, its loop, and the board of its heritage. */
static inline void close_hub(struct hub *hub, struct board *board)
{
    struct loop *l = hub->loop;

    clients_close_all(hub);
    (void)loop_poll(l, 0);
    lendings_free(hub->lendings);
    upstreams_free(hub->upstreams);
    hub_done(hub);
    loop_free(l);
    board_free(board);
}

#endif
