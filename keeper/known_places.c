/*
 * The places that this node has seen in the store, in the file `fleet-places` of its state folder.
 * No command removes the entry of a place that is not vacant. So places of the file that the store
 * lacks at a start are lost, as if this node had seen the store being emptied (keeper_state.h), and
 * their ids are never unknown. If the store lacks own places, too, it is a new one: then older
 * claims than those of the file are no claims. With any other store, a claim of the file that the
 * store lacks was lost in a failover (`newest` in fleet_view.h). The first line is the fleet's
 * name: claims of another fleet are no claims here. All others:
 *
 *     INDEX BASE STATE [OWNER]     STATE: `t`: marked as taken, `v`: vacant and taken, `-`: neither
 *     INDEX EPOCH n OWNER          the newest claim that was seen, if it is not the base
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/file.h"
#include "common/proc/heritage.h"
#include "keeper/keeper_state.h"

enum { PATH_SIZE = 4096 + 32, LINE_MAX = 64 + FLEET_NAME_MAX };

static void write_path(const struct fleet_keeper *k, char ret[PATH_SIZE])
{
    (void)snprintf(ret, PATH_SIZE, "%s/fleet-places", k->h->state_dir);
}

/* --- writing --- */

/* No id of a vacant place is lost, unless it was taken. */
static void put_places(const struct map *places, struct buf *out)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(places, &at));) {
        const struct seen_place *p = slot->value;

        if (!p->vacant || p->taken)
            buf_printf(out, "%" PRIu32 " %" PRIu64 " %c %s\n", p->index, p->base,
                       p->vacant  ? 'v'
                       : p->taken ? 't'
                                  : '-',
                       p->owner);
        if (!p->vacant && p->newest > p->base)
            buf_printf(out, "%" PRIu32 " %" PRIu64 " n %s\n", p->index, p->newest, p->owner);
    }
}

static void write_places(struct fleet_keeper *k)
{
    char path[PATH_SIZE], aside[PATH_SIZE + 8];
    struct buf text = {0};
    struct err e;

    write_path(k, path);
    (void)snprintf(aside, sizeof(aside), "%s.new", path);
    buf_printf(&text, "%s\n", k->url.name);
    put_places(&k->view.places, &text);
    put_places(&k->view.gone, &text);
    /* synced: a file that a power cut has torn would stop the next start */
    if (file_write(path, aside, buf_str(&text), true)) {
        (void)err_sys(&e, ERR_IO, "cannot write %s", path);
        log_error(NULL,
                  "cannot write which places the fleet has: if the store is lost, ids of lost "
                  "sessions may be unknown",
                  LOG_T("reason", e.text));
    }
    buf_done(&text);
}

void known_places_write(struct fleet_keeper *k)
{
    uint32_t changes = place_table_place_changes(k->table);

    if (k->written_changes != changes)
        write_places(k);
    k->written_changes = changes; /* after a failure, too: the next change tries again */
}

/* --- reading --- */

static int read_line(struct str line, struct seen_place *ret)
{
    struct str index = str_cut(&line, ' '), base = str_cut(&line, ' '), state = str_cut(&line, ' ');
    uint64_t number;

    *ret = (struct seen_place){0};
    if (str_to_u64(index, FLEET_DISPATCHER, &number) ||
        (number / FLEET_BLOCK_SIZE >= FLEET_BLOCKS && number != FLEET_DISPATCHER) ||
        str_to_u64(base, FLEET_EPOCH_MAX, &ret->base) || ret->base == 0 || state.len != 1 ||
        line.len >= FLEET_NAME_MAX)
        return -1;
    ret->index = (uint32_t)number;
    ret->vacant = state.p[0] == 'v';
    ret->taken = ret->vacant || state.p[0] == 't';
    ret->newest = state.p[0] == 'n' ? ret->base : 0;
    (void)snprintf(ret->key, sizeof(ret->key), "%" PRIu32, ret->index);
    (void)snprintf(ret->owner, sizeof(ret->owner), "%.*s", (int)line.len, line.p ? line.p : "");
    return 0;
}

/* Keeps a place that the store lacks, so that its requests wait from now on. */
static void add_gone(struct fleet_keeper *k, const struct seen_place *p)
{
    const struct fleet_place place = {
        .index = p->index, .node = FLEET_NO_NODE, .epoch = p->base, .taken = p->taken};
    const struct seen_place *now = fleet_view_place(&k->view, p->index);
    struct seen_place *copy;

    if (now && !fleet_view_lacks_claim(now, p->base))
        return;
    if (!now && p->vacant)
        (void)place_table_set_vacant(k->table, p->index, true);
    else if (!now && place_table_set(k->table, &place))
        place_table_remove(k->table, p->index);
    copy = mem_alloc(sizeof(*copy));
    *copy = *p;
    copy->lost = true;
    fleet_view_keep_gone(&k->view, copy, clock_boot_ms());
}

/* Uses a line: with a place that the store has, unless it is new, as a claim that was seen before
 * the last start. */
static void use_line(struct fleet_keeper *k, const struct seen_place *p, bool is_new)
{
    struct seen_place *now = fleet_view_place(&k->view, p->index);

    if (now && !is_new)
        now->newest = now->owner[0] ? MAX_OF(now->newest, p->base) : now->newest;
    else if (p->newest == 0)
        add_gone(k, p);
}

/* Uses the places of all lines, with `k` NULL none. -1 with the reason: a line is damaged. */
static int read_lines(struct fleet_keeper *k, struct str lines, bool is_new, const char *path,
                      struct err *e)
{
    struct seen_place p;

    for (unsigned line = 2; lines.len > 0; line++) {
        if (read_line(str_cut(&lines, '\n'), &p))
            return err_set(e, ERR_CONFIG, "%s: line %u is damaged", path, line);
        if (k)
            use_line(k, &p, is_new);
    }
    return 0;
}

/* Reads the file. Sets *ret_fleet to its first line, the fleet's name; empty: there is no file. -1
 * with the reason. */
static int read_places(const char *path, struct buf *text, struct str *ret_fleet,
                       struct str *ret_lines, struct err *e)
{
    *ret_fleet = *ret_lines = (struct str){0};
    if (file_read(path, (size_t)FLEET_PLACES_MAX * 2 * LINE_MAX, text, e))
        return e->sys == ENOENT ? 0 : -1;
    *ret_lines = buf_str(text);
    *ret_fleet = str_cut(ret_lines, '\n');
    return ret_fleet->len > 0 ? 0 : err_set(e, ERR_CONFIG, "%s: line 1 is damaged", path);
}

void known_places_read(struct fleet_keeper *k, bool is_new)
{
    char path[PATH_SIZE];
    struct buf text = {0};
    struct str lines, fleet;
    struct err e;
    int rc;

    write_path(k, path);
    rc = read_places(path, &text, &fleet, &lines, &e);
    if (rc == 0 && !str_eq_c(fleet, k->url.name))
        write_places(k); /* from now on the folder is of this fleet */
    else if (rc || read_lines(k, lines, is_new, path, &e))
        log_error(NULL,
                  "cannot read which places the fleet had: ids of lost sessions may be unknown",
                  LOG_T("reason", e.text));
    buf_done(&text);
}

int known_places_check(const struct fleet_keeper *k, struct err *e)
{
    char path[PATH_SIZE];
    struct buf text = {0};
    struct str lines, fleet;
    struct err fault;
    int rc = 0;

    write_path(k, path);
    if (read_places(path, &text, &fleet, &lines, &fault) ||
        read_lines(NULL, lines, false, path, &fault))
        rc = err_set(e, ERR_CONFIG,
                     "%s; the file says which fleet --state-dir is of: mend it, or remove it if "
                     "that is \"%s\"",
                     fault.text, k->url.name);
    else if (fleet.len > 0 && !str_eq_c(fleet, k->url.name) && ownership_has_folders(k))
        rc = err_set(e, ERR_CONFIG,
                     "--fleet: --state-dir %s is of the fleet \"%.*s\", not of \"%s\": use that "
                     "name, or another --state-dir",
                     k->h->state_dir, (int)fleet.len, fleet.p, k->url.name);
    buf_done(&text);
    return rc;
}
