/* Folders of places, and what they say about earlier claims (keeper_state.h). */
#include <string.h>

#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/place_folder.h"
#include "keeper/keeper_state.h"

bool ownership_has_folder(const struct fleet_keeper *k, uint32_t index)
{
    return place_folder_exists(k->h->state_dir, index);
}

static struct place_base read_base(const struct fleet_keeper *k, uint32_t index)
{
    struct place_base base;
    struct err e;

    if (place_folder_read_base(k->h->state_dir, index, &base, &e))
        log_error(NULL, "cannot read which claim a folder stems from, any other one is newer",
                  place_table_log("index", index), LOG_T("reason", e.text));
    return base;
}

uint64_t ownership_read_base(const struct fleet_keeper *k, uint32_t index)
{
    return read_base(k, index).claim;
}

bool ownership_is_unread(const struct fleet_keeper *k, uint32_t index)
{
    return read_base(k, index).unread;
}

void ownership_write_base(const struct fleet_keeper *k, uint32_t index, uint64_t base, bool unread)
{
    bool durable = k->h->config->durability == DURABILITY_POWER;
    struct err e;

    if (place_folder_write_base(k->h->state_dir, index, (struct place_base){base, unread}, durable,
                                &e))
        log_error(NULL,
                  "cannot write which claim a folder stems from: if the store is lost, a node "
                  "with older sessions may win",
                  place_table_log("index", index), LOG_T("reason", e.text));
}

bool ownership_put_vacant(const struct fleet_keeper *k, uint32_t index)
{
    return board_resolve(k->h->board, index) < 0 &&
           place_folder_put_aside(k->h->state_dir, index, PLACE_FOLDER_LOST);
}

bool ownership_is_forgotten(const struct fleet_keeper *k, const struct seen_place *p)
{
    return strcmp(p->owner, k->name) != 0 && p->version <= k->entry.newest_record &&
           fleet_view_lacks_claim(p, ownership_read_base(k, p->index));
}
