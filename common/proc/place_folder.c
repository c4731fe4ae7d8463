/* Names of journal folders (place_folder.h). */
#include "common/proc/place_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/fleet/place_table.h"
#include "common/os/file.h"

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

uint64_t place_folder_newest_ms(const char *state_dir, uint32_t index)
{
    char path[PATH_SIZE];
    const struct dirent *entry;
    uint64_t newest = 0;
    struct stat st;
    DIR *d;

    write_path(state_dir, index, path);
    d = opendir(path);
    while (d && (entry = file_next_entry(d)))
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            newest = MAX_OF(newest, (uint64_t)st.st_mtim.tv_sec * 1000 +
                                        (uint64_t)st.st_mtim.tv_nsec / 1000000);
    if (d)
        (void)closedir(d);
    return newest;
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
