/* Names of journal folders (place_folder.h). */
#include "common/proc/place_folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/fleet/place_table.h"
#include "common/os/file.h"

enum { PATH_SIZE = PLACE_FOLDER_MAX - 32 /* without an end */, BASE_MAX = 32 /* bytes */ };

#define UNREAD " unread"

static void write_path(const char *state_dir, uint32_t index, char ret[PATH_SIZE])
{
    if (index == FLEET_DISPATCHER)
        (void)snprintf(ret, PATH_SIZE, "%s/dispatcher", state_dir);
    else
        (void)snprintf(ret, PATH_SIZE, "%s/worker-%u", state_dir, (unsigned)index);
}

bool worker_folder_parse(const char *name, uint32_t *ret_index)
{
    static const struct str head = STR_LIT("worker-");
    struct str text = str_cstr(name);
    uint64_t index;

    if (!str_starts(text, head) ||
        str_to_u64(str_sub(text, head.len, SIZE_MAX), FLEET_BLOCKS * FLEET_BLOCK_SIZE - 1, &index))
        return false;
    *ret_index = (uint32_t)index;
    return true;
}

bool place_folder_exists(const char *state_dir, uint32_t index)
{
    char path[PATH_SIZE];

    write_path(state_dir, index, path);
    return access(path, F_OK) == 0;
}

/* Returns the path of the file in the folder that has the base. */
static void write_base_path(const char *state_dir, uint32_t index, char ret[PLACE_FOLDER_MAX])
{
    char path[PATH_SIZE];

    write_path(state_dir, index, path);
    (void)snprintf(ret, PLACE_FOLDER_MAX, "%s/fleet-base", path);
}

static int parse_base(struct str text, struct place_base *ret)
{
    ret->unread = str_ends(text, STR(UNREAD));
    return str_to_u64(str_sub(text, 0, text.len - (ret->unread ? strlen(UNREAD) : 0)),
                      FLEET_EPOCH_MAX, &ret->claim);
}

int place_folder_read_base(const char *state_dir, uint32_t index, struct place_base *ret,
                           struct err *e)
{
    char path[PLACE_FOLDER_MAX];
    struct buf text = {0};
    int rc = 0;

    *ret =
        (struct place_base){.claim = place_folder_exists(state_dir, index) ? FLEET_BASE_OLDEST : 0};
    write_base_path(state_dir, index, path);
    if (file_read(path, BASE_MAX, &text, e))
        rc = e->sys == ENOENT ? 0 : -1;
    else if (parse_base(buf_str(&text), ret))
        rc = err_set(e, ERR_IO, "%s: has no base", path);
    buf_done(&text);
    return rc;
}

int place_folder_write_base(const char *state_dir, uint32_t index, struct place_base base,
                            bool durable, struct err *e)
{
    char folder[PATH_SIZE], path[PLACE_FOLDER_MAX], aside[PLACE_FOLDER_MAX + 8], text[BASE_MAX];
    bool made;

    write_path(state_dir, index, folder);
    write_base_path(state_dir, index, path);
    (void)snprintf(aside, sizeof(aside), "%s.new", path);
    (void)snprintf(text, sizeof(text), "%llu%s", (unsigned long long)base.claim,
                   base.unread ? UNREAD : "");
    made = mkdir(folder, 0700) == 0;
    if (!made && errno != EEXIST)
        return err_sys(e, ERR_IO, "cannot make %s", folder);
    if (file_write(path, aside, str_cstr(text), durable) ||
        (durable && (file_sync_folder(folder) || (made && file_sync_folder(state_dir)))))
        return err_sys(e, ERR_IO, "cannot write %s", path);
    return 0;
}

/* Renames the folder, and returns the new path. Returns 0; 1 if there is none; -1 with ERR_IO. */
static int rename_folder(const char *state_dir, uint32_t index, const char *end,
                         char ret[PLACE_FOLDER_MAX], struct err *e)
{
    char path[PATH_SIZE];

    write_path(state_dir, index, path);
    if (access(path, F_OK) != 0)
        return 1;
    (void)snprintf(ret, PLACE_FOLDER_MAX, "%s.%s", path, end);
    for (unsigned n = 2; access(ret, F_OK) == 0; n++)
        (void)snprintf(ret, PLACE_FOLDER_MAX, "%s.%s-%u", path, end, n);
    return rename(path, ret) ? err_sys(e, ERR_IO, "cannot rename %s", path) : 0;
}

bool place_folder_put_aside(const char *state_dir, uint32_t index, const char *end)
{
    char aside[PLACE_FOLDER_MAX];
    struct err e;
    int rc = rename_folder(state_dir, index, end, aside, &e);

    if (rc < 0)
        log_error(NULL, "cannot put aside the folder of a place that another node may have",
                  place_table_log("index", index), LOG_T("reason", e.text));
    else if (rc == 0 && strcmp(end, PLACE_FOLDER_RELEASED) == 0)
        log_info(NULL, "a place was released, its folder is kept", place_table_log("index", index),
                 LOG_T("folder", aside));
    else if (rc == 0)
        log_warn(NULL, "another node had a place of this node, its folder is kept",
                 place_table_log("index", index), LOG_T("folder", aside));
    return rc >= 0;
}
