/*
 * Folders of places that this node has lost or released (common/proc/place_folder.h). One worker of
 * a node does the work, one folder at a time:
 *
 *   worker-7.lost       when its place is whole at its owner, its records are compared with the
 *                       store's. Records that the store lacks are reported, one line per session
 *   FOLDER/compared     has these lines: the folder is not compared again
 *   an empty `compared` the folder is removed after --export-retention
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/os/file.h"
#include "common/os/task.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/ledger/old_journal.h"
#include "worker/plane/control/handlers.h"
#include "worker/worker_state.h"

#define COMPARED "compared"

struct old_folder {
    struct worker_state *w;
    bool removes; /* nothing is missing: the folder is removed */
    struct old_journal journal;
};

static int remove_folder(void *ctx, void *tool, struct err *e)
{
    (void)tool, (void)e;
    file_remove_tree(((struct old_journal *)ctx)->path);
    return 0;
}

static void free_folder(struct old_folder *f)
{
    old_journal_done(&f->journal);
    f->w->comparing = false;
    free(f);
}

/* Writes the result, after which the folder is not compared again. */
static void write_result(struct old_folder *f)
{
    struct buf path = {0}, aside = {0};

    buf_printf(&path, "%s/" COMPARED, f->journal.path);
    buf_printf(&aside, "%s/" COMPARED ".new", f->journal.path);
    buf_add_c(&path, 0);
    buf_add_c(&aside, 0);
    if (file_write(path.p, aside.p, buf_str(&f->journal.report), false))
        log_error(NULL, "cannot write to a folder that was put aside",
                  LOG_T("folder", f->journal.path));
    buf_done(&path);
    buf_done(&aside);
    metrics_count(f->w->service.calls.page, METRIC_fleet_missing, f->journal.missing);
    if (f->journal.unjudged > 0)
        log_warn(NULL,
                 "sessions of a folder that was put aside are not in the fleet's store, and "
                 "may have ended since",
                 LOG_U("sessions", f->journal.unjudged), LOG_T("folder", f->journal.path));
}

/* The task of one folder. After a failure a later tick begins again. */
static void serve_folder(void *ctx)
{
    struct old_folder *f = ctx;
    struct err e = {0};
    struct task_work work = {.fn = f->removes ? remove_folder : old_journal_read,
                             .ctx = &f->journal,
                             .lane = STR("old-folder"),
                             .is_long = true};

    if (task_offload(&work, &e) == 0) {
        if (f->removes)
            log_info(NULL, "removed a folder that was put aside", LOG_T("folder", f->journal.path));
        else if (old_journal_compare(&f->journal) == 0)
            write_result(f);
    } else if (e.kind != ERR_CANCELLED) {
        log_error(NULL, "a folder that was put aside cannot be read",
                  LOG_T("folder", f->journal.path), LOG_T("reason", e.text));
        buf_printf(&f->journal.report, "cannot be read: %s\n", e.text);
        write_result(f);
    }
    free_folder(f);
}

/* --- choosing --- */

/* Parses "worker-INDEX.END" and "worker-INDEX.END-N", and "dispatcher.END" like these. */
static bool parse_name(const char *name, uint32_t *ret_index, bool *ret_lost)
{
    struct str text = str_cstr(name), end;
    size_t dot = str_find(text, STR("."), 0);
    uint64_t index = FLEET_DISPATCHER;

    if (dot == SIZE_MAX)
        return false;
    if (!str_eq(str_sub(text, 0, dot), STR("dispatcher")) &&
        (!str_starts(text, STR("worker-")) ||
         str_to_u64(str_sub(text, 7, dot - 7), 999999, &index)))
        return false;
    end = str_sub(text, dot + 1, SIZE_MAX);
    *ret_index = (uint32_t)index;
    *ret_lost = str_starts(end, STR(PLACE_FOLDER_LOST));
    return *ret_lost || str_starts(end, STR(PLACE_FOLDER_RELEASED));
}

/* Reports whether the store has all records of the place's owner. */
static bool is_complete(const struct place_table *t, uint32_t index)
{
    struct fleet_place place;

    return place_table_is_vacant(t, index) ||
           (place_table_find(t, index, &place) && place.whole && place.node != FLEET_NO_NODE);
}

/* Reports whether there is work to do for the folder now. A folder that was released is complete.
 */
static bool has_work(struct old_folder *f, bool lost)
{
    const struct heritage *h = f->w->h;
    uint64_t now_ms = clock_wall_ms();
    struct buf path = {0};
    bool compared;
    struct stat st;

    buf_printf(&path, "%s/" COMPARED, f->journal.path);
    buf_add_c(&path, 0);
    compared = stat(path.p, &st) == 0;
    buf_done(&path);
    f->removes = compared;
    if (compared) {
        return st.st_size == 0 &&
               now_ms > (uint64_t)st.st_mtime * 1000 + (uint64_t)h->config->export_retention_ms;
    }
    if (!lost)
        write_result(f);
    return lost && is_complete(h->fleet, f->journal.index);
}

/* Finds a folder with work. */
static bool find_folder(struct old_folder *f)
{
    const char *state_dir = f->w->h->state_dir;
    DIR *d = opendir(state_dir);
    const struct dirent *entry;
    bool found = false, lost;

    while (d && !found && (entry = file_next_entry(d))) {
        if (!parse_name(entry->d_name, &f->journal.index, &lost))
            continue;
        (void)snprintf(f->journal.path, sizeof(f->journal.path), "%s/%s", state_dir, entry->d_name);
        found = has_work(f, lost);
    }
    if (d)
        (void)closedir(d);
    return found;
}

void worker_folders_tick(struct worker_state *w)
{
    struct old_folder *f;

    if (!w->store || w->comparing || !siblings_lead(w->h))
        return;
    f = mem_zalloc(sizeof(*f));
    f->w = w;
    f->journal.store = w->store;
    f->journal.remembered_ms = (uint64_t)w->h->config->tombstone_ttl_ms;
    w->comparing = true;
    if (find_folder(f))
        (void)task_start(w->service.calls.tasks, STR("old-folder"), serve_folder, f);
    else
        free_folder(f);
}
