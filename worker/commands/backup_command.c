/*
 * Copies a state folder (backup_command.h), in this order:
 *   1 other files: images, spooled exports, engines.json, the secret ...
 *   2 the dispatcher's journal, so that no group names a turn that a worker's copy lacks
 *   3 the workers' journals
 *   4 other files that are new since step 1: images and exports of sessions that have ended
 * An image is in the folder before the record that names it, and an export is spooled before its
 * session leaves the journal. So step 1 or step 4 copies each.
 */
#include "worker/commands/offline_commands.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/str.h"
#include "common/journal/backup.h"
#include "common/os/file.h"

/* State of one backup. */
struct backup {
    struct backup_tally tally;
    time_t since; /* time before which a copied file counts as unchanged */
    bool again;   /* true in step 4 */
};

static int copy_folder(struct backup *b, const char *from, const char *to, struct err *e);

/* Reports whether step 1 skips the file: steps 2 and 3 copy it, it only reserves disk space, or it
 * belongs to running processes. */
static bool is_skipped(const char *name)
{
    static const char *const names[] = {".", "..", "run", "MANIFEST", "MANIFEST.new", "reserve"};

    return str_is_one_of(str_cstr(name), names, ARRAY_LEN(names)) ||
           strncmp(name, "seg-", 4) == 0 || str_ends(str_cstr(name), STR(".lock"));
}

/* Reports whether step 1 has copied the file and it has not changed since. */
static bool is_copied(const struct backup *b, const char *to, const struct stat *from)
{
    struct stat st;

    return stat(to, &st) == 0 && st.st_size == from->st_size && from->st_mtime < b->since;
}

/* Copies one entry. Sockets, links and devices are skipped; links are reported once. A file that
 * has disappeared is no error. */
static int copy_entry(struct backup *b, const char *from, const char *to, struct err *e)
{
    struct stat st;

    if (lstat(from, &st))
        return errno == ENOENT ? 0 : err_sys(e, ERR_IO, "cannot look at %s", from);
    if (S_ISDIR(st.st_mode))
        return copy_folder(b, from, to, e);
    if (S_ISLNK(st.st_mode) && !b->again)
        fprintf(stderr, "%s is a link: not copied\n", from);
    if (!S_ISREG(st.st_mode) || is_copied(b, to, &st))
        return 0;
    return backup_copy_file(from, to, &b->tally, e) < 0 ? -1 : 0;
}

static int copy_folder(struct backup *b, const char *from, const char *to, struct err *e)
{
    DIR *d = opendir(from);
    const struct dirent *entry;
    int rc = 0;

    if (!d)
        return errno == ENOENT ? 0 : err_sys(e, ERR_IO, "cannot open %s", from);
    if (mkdir(to, 0700) && errno != EEXIST)
        rc = err_sys(e, ERR_IO, "cannot make %s", to);
    while (rc == 0 && (entry = file_next_entry(d)) != NULL) {
        char *in, *out;

        if (is_skipped(entry->d_name))
            continue;
        in = path_join(from, entry->d_name);
        out = path_join(to, entry->d_name);
        rc = copy_entry(b, in, out, e);
        free(in);
        free(out);
    }
    if (rc == 0 && errno)
        rc = err_sys(e, ERR_IO, "cannot read %s", from);
    (void)closedir(d);
    if (rc == 0 && file_sync_folder(to))
        rc = err_sys(e, ERR_IO, "cannot sync %s", to);
    return rc;
}

static int copy_journals(struct backup *b, const struct backup_folders *journals, const char *to,
                         struct err *e)
{
    int rc = 0;

    for (size_t i = 0; i < journals->n && rc == 0; i++) {
        char *out = path_join(to, strrchr(journals->at[i], '/') + 1);

        if (mkdir(out, 0700) && errno != EEXIST)
            rc = err_sys(e, ERR_IO, "cannot make %s", out);
        else
            rc = backup_copy_journal(journals->at[i], out, &b->tally, e);
        free(out);
    }
    return rc;
}

/* Makes the folder `to` and does all four steps. */
static int copy_state(struct backup *b, const char *from, const char *to, struct err *e)
{
    struct backup_folders journals = {0};
    int rc = backup_find_journals(from, &journals, e);

    if (rc == 0 && journals.n == 0)
        rc = err_set(e, ERR_IO, "%s is no state folder: it has no journal", from);
    if (rc == 0 && mkdir(to, 0700))
        rc = err_sys(e, ERR_IO, "cannot make %s", to);
    if (rc == 0)
        rc = copy_folder(b, from, to, e);
    if (rc == 0)
        rc = copy_journals(b, &journals, to, e);
    b->again = true;
    if (rc == 0)
        rc = copy_folder(b, from, to, e);
    if (rc == 0)
        printf("%zu journals, %llu files, %llu bytes\n", journals.n,
               (unsigned long long)b->tally.files, (unsigned long long)b->tally.bytes);
    backup_free_folders(&journals);
    return rc;
}

/* Reports whether `to` is in the state folder: such a copy would have to contain itself. */
static bool is_inside(const char *state_dir, const char *to)
{
    char *outer = realpath(state_dir, NULL), *path = file_absolute_path(to);
    char *inner = NULL;
    bool inside;

    if (path && strrchr(path, '/')) {
        *strrchr(path, '/') = '\0';
        inner = realpath(path[0] ? path : "/", NULL);
    }
    inside = outer && inner && str_starts(str_cstr(inner), str_cstr(outer)) &&
             (inner[strlen(outer)] == '/' || inner[strlen(outer)] == '\0');
    free(outer);
    free(path);
    free(inner);
    return inside;
}

/* Makes the copy under a temporary name, and renames it when it is complete. */
static int run_backup(const char *from, const char *to)
{
    struct backup b = {.since = time(NULL) - 1};
    struct buf part = {0};
    struct stat st;
    struct err e = {0};
    int rc;

    buf_printf(&part, "%s.part", to);
    buf_add_c(&part, '\0');
    if (lstat(to, &st) == 0)
        rc = err_set(&e, ERR_IO, "%s exists; name a new folder", to);
    else if (is_inside(from, to))
        rc = err_set(&e, ERR_IO, "%s is in %s; name a folder outside", to, from);
    else
        rc = copy_state(&b, from, part.p, &e);
    if (rc == 0 && rename(part.p, to))
        rc = err_sys(&e, ERR_IO, "cannot rename %s", part.p);
    if (rc)
        fprintf(stderr, "rollgate backup: %s\n", e.text);
    buf_done(&part);
    return rc ? 1 : 0;
}

int backup_command(int argc, char **argv)
{
    if (argc == 3 && argv[1][0] != '-' && argv[2][0] != '-')
        return run_backup(argv[1], argv[2]);
    fprintf(stderr, "usage: rollgate backup STATE_DIR NEW_DIR\n");
    return 2;
}
