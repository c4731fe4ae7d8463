/* Looks through a spool at a start. */
#include <fcntl.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/file.h"
#include "worker/sink/sink_target.h"

/* Opens a folder of the spool. NULL with errno on failure. */
static DIR *open_folder(int spool, const char *name, int flags)
{
    int fd = openat(spool, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && fd >= 0)
        (void)close(fd);
    return dir;
}

/* Counts the files in a folder whose names have that ending. */
static size_t count_files(int spool, const char *folder, struct str ending)
{
    DIR *dir = open_folder(spool, folder, 0);
    const struct dirent *entry;
    size_t n = 0;

    while (dir && (entry = file_next_entry(dir)))
        n += str_ends(str_cstr(entry->d_name), ending);
    (void)file_end_entries(dir, folder);
    return n;
}

/* Removes entries of groups that a crash left incomplete, also in folders of sinks that are no
 * longer set. The dispatcher sends such an entry again, perhaps to a different worker. */
static void remove_fragments(int spool, const char *path, const char *name)
{
    DIR *dir = open_folder(spool, name, O_NOFOLLOW);
    const struct dirent *entry;
    size_t n = 0;

    while (dir && (entry = file_next_entry(dir)))
        n += target_is_part(str_cstr(entry->d_name)) && unlinkat(dirfd(dir), entry->d_name, 0) == 0;
    (void)file_end_entries(dir, name);
    if (n > 0)
        log_info(NULL, "entries of groups that were not written to their end are removed",
                 LOG_T("folder", path), LOG_T("sink", name), LOG_U("files", n));
}

/* Logs files in a sink's folder that no target sends. They stay, and are logged at every start. */
static void log_leftovers(int spool, const char *path, const char *name, bool is_set)
{
    size_t damaged = count_files(spool, name, STR(".damaged")), waiting, pointed;
    struct buf sub = {0};

    if (damaged > 0)
        log_warn(NULL, "damaged exports lie aside in the spool", LOG_T("folder", path),
                 LOG_T("sink", name), LOG_U("files", damaged));
    if (is_set)
        return;
    waiting = count_files(spool, name, STR(".msgpack"));
    buf_printf(&sub, "%s/pointed", name);
    pointed = count_files(spool, sub.p, STR(".msgpack"));
    buf_done(&sub);
    if (waiting + pointed > 0)
        log_warn(NULL, "files wait for a sink that is not set any more", LOG_T("folder", path),
                 LOG_T("sink", name), LOG_U("files", waiting), LOG_U("pointed", pointed));
}

void spool_scan(const char *state_dir, uint32_t index,
                bool (*is_set)(const void *sinks, const char *name), const void *sinks)
{
    struct buf path = {0};
    const struct dirent *entry;
    DIR *dir;

    buf_printf(&path, "%s/worker-%u/spool", state_dir, index);
    dir = opendir(path.p);
    while (dir && (entry = file_next_entry(dir))) {
        if (str_ends(str_cstr(entry->d_name), STR(".part"))) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        } else if (entry->d_name[0] != '.') {
            remove_fragments(dirfd(dir), path.p, entry->d_name);
            log_leftovers(dirfd(dir), path.p, entry->d_name, is_set(sinks, entry->d_name));
        }
    }
    (void)file_end_entries(dir, path.p);
    buf_done(&path);
}
