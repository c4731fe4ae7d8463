/* Names of journal folders (place_folder.h). */
#include "common/proc/place_folder.h"

#include <stdio.h>
#include <unistd.h>

#include "common/fleet/place_table.h"

enum { PATH_SIZE = PLACE_FOLDER_MAX - 32 /* without an end */ };

static void write_path(const char *state_dir, uint32_t index, char ret[PATH_SIZE])
{
    if (index == FLEET_DISPATCHER)
        (void)snprintf(ret, PATH_SIZE, "%s/dispatcher", state_dir);
    else
        (void)snprintf(ret, PATH_SIZE, "%s/worker-%u", state_dir, (unsigned)index);
}

bool place_folder_exists(const char *state_dir, uint32_t index)
{
    char path[PATH_SIZE];

    write_path(state_dir, index, path);
    return access(path, F_OK) == 0;
}

int place_folder_rename(const char *state_dir, uint32_t index, const char *end,
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
