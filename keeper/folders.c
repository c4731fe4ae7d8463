/* Folders of places, and what they say about earlier claims (keeper_state.h). */
#include <dirent.h>
#include <string.h>

#include "common/base/log.h"
#include "common/os/file.h"
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

/* --- all folders --- */

bool ownership_has_folders(const struct fleet_keeper *k)
{
    DIR *d = opendir(k->h->state_dir);
    bool found = ownership_has_folder(k, FLEET_DISPATCHER);
    const struct dirent *entry;
    uint32_t index;

    while (!found && d && (entry = file_next_entry(d)))
        found = worker_folder_parse(entry->d_name, &index);
    if (d)
        (void)closedir(d);
    return found;
}

/* The store lacks a place of this node: it was emptied, or is a new one. */
static void handle_new_store(struct fleet_keeper *k)
{
    if (k->view.emptied_round > 0)
        return;
    fleet_view_note_emptied(&k->view);
    known_places_read(k, true);
}

/* Returns the next folder whose claim the store has forgotten, and that is not claimed yet. */
static bool next_forgotten(const struct fleet_keeper *k, DIR *d, uint32_t *ret)
{
    const struct dirent *entry;
    const struct seen_place *p;

    while (d && (entry = file_next_entry(d))) {
        if (!worker_folder_parse(entry->d_name, ret) || place_table_own_epoch(k->table, *ret) ||
            ownership_is_claimed(k, *ret))
            continue;
        p = fleet_view_place(&k->view, *ret);
        if (!p || ownership_is_forgotten(k, p))
            return true;
    }
    return false;
}

size_t ownership_claim_folders(struct fleet_keeper *k)
{
    DIR *d = opendir(k->h->state_dir);
    size_t claimed = 0;
    uint32_t index;

    while (next_forgotten(k, d, &index)) {
        handle_new_store(k);
        ownership_claim_first(k, index, false);
        claimed += index / FLEET_BLOCK_SIZE == k->entry.block;
    }
    (void)file_end_entries(d, k->h->state_dir);
    return claimed;
}

bool ownership_has_forgotten(const struct fleet_keeper *k)
{
    DIR *d = opendir(k->h->state_dir);
    uint32_t index;
    bool found = next_forgotten(k, d, &index);

    if (d)
        (void)closedir(d);
    return found;
}
