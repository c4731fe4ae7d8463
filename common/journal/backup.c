/* Copies the segments that the manifest names, then the manifest. The last segment is copied up to
 * its last whole record. If the manifest changed meanwhile, copies the newly named segments and the
 * last one again. */

#include "common/journal/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/files.h"
#include "common/journal/segment.h"
#include "common/os/file.h"

enum { TRIES = 100, CHUNK = 1 << 20 };

/* Copies all bytes of `in` to the end of `out`. Returns 1 if the file was truncated meanwhile. */
static int copy_bytes(int in, int out, struct backup_tally *tally, struct err *e)
{
    char *chunk = mem_alloc(CHUNK);
    uint64_t before = tally->bytes;
    struct stat st;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && (n = read(in, chunk, CHUNK)) != 0) {
        struct iovec part = {chunk, n > 0 ? (size_t)n : 0};

        if (n < 0)
            rc = errno == EINTR ? 0 : err_sys(e, ERR_IO, "cannot read a file");
        else
            rc = files_append(out, &part, 1, e);
        tally->bytes += part.iov_len;
    }
    free(chunk);
    if (rc == 0 && fstat(in, &st))
        return err_sys(e, ERR_IO, "cannot look at a file");
    return rc == 0 ? (uint64_t)st.st_size < tally->bytes - before : rc;
}

int backup_copy_file(const char *from, const char *to, struct backup_tally *tally, struct err *e)
{
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), out, rc = -1;

    if (in < 0)
        return errno == ENOENT ? 1 : err_sys(e, ERR_IO, "cannot open %s", from);
    out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0)
        (void)err_sys(e, ERR_IO, "cannot make %s", to);
    else
        rc = copy_bytes(in, out, tally, e);
    if (rc == 0 && fdatasync(out))
        rc = err_sys(e, ERR_IO, "cannot sync %s", to);
    tally->files += rc == 0;
    if (out >= 0)
        (void)close(out);
    (void)close(in);
    return rc;
}

/* Cuts the bytes after the last whole record: a record that was being written, or a torn tail. */
static int cut_tail(const char *path, uint32_t number, struct err *e)
{
    int fd = open(path, O_RDWR | O_CLOEXEC), rc;
    struct segment_reader in;
    struct journal_record rec;
    struct str bytes = {0};

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open %s", path);
    rc = files_map(fd, false, &bytes, e) || segment_reader_init(&in, bytes, number, e);
    while (rc == 0 && segment_reader_next(&in, &rec) == 1)
        ;
    if (rc == 0 && in.at < bytes.len && (ftruncate(fd, (off_t)in.at) || fdatasync(fd)))
        rc = err_sys(e, ERR_IO, "cannot cut %s", path);
    files_unmap(bytes);
    (void)close(fd);
    return rc ? -1 : 0;
}

static bool has_number(const struct numbers *v, uint32_t number)
{
    for (size_t i = 0; i < v->n; i++) {
        if (v->at[i] == number)
            return true;
    }
    return false;
}

static char *segment_path(const char *dir, uint32_t number)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "seg-%08u", number);
    return path_join(dir, name);
}

/* Copies a segment. Returns 1 if it does not exist any longer. */
static int copy_segment(const char *from, const char *to, uint32_t number, bool last,
                        struct backup_tally *tally, struct err *e)
{
    char *in = segment_path(from, number), *out = segment_path(to, number);
    int rc = backup_copy_file(in, out, tally, e);

    if (rc == 0 && last)
        rc = cut_tail(out, number, e);
    free(in);
    free(out);
    return rc;
}

/* Copies the named segments that are not copied yet, and always the last one. Returns 1 if one does
 * not exist any longer, because the manifest has changed. */
static int copy_named(const char *from, const char *to, const struct numbers *named,
                      struct numbers *copied, struct backup_tally *tally, struct err *e)
{
    for (size_t i = 0; i < named->n; i++) {
        bool last = i + 1 == named->n;
        int rc;

        if (has_number(copied, named->at[i]))
            continue;
        rc = copy_segment(from, to, named->at[i], last, tally, e);
        if (rc)
            return rc;
        if (!last)
            *vec_push(copied) = named->at[i];
    }
    return 0;
}

static bool is_same(const struct numbers *a, const struct numbers *b)
{
    return a->n == b->n && memcmp(a->at, b->at, a->n * sizeof(*a->at)) == 0;
}

/* Reports whether the manifest names other segments now. Returns -1 and e on error. */
static int is_changed(int in, const struct numbers *named, struct err *e)
{
    struct numbers again = {0};
    bool older;
    int rc = files_read_manifest(in, &again, &older, e);

    if (rc == 0)
        rc = !is_same(named, &again);
    vec_done(&again);
    return rc;
}

/* Writes the manifest of the copy. Removes segments that earlier attempts have copied. */
static int finish_copy(int out, const struct numbers *named, struct err *e)
{
    if (files_write_manifest(out, named->at, named->n, true, e))
        return -1;
    files_remove_strays(out, named->at, named->n);
    return 0;
}

/* A copy of one journal, in progress. */
struct journal_copy {
    const char *from, *to;
    int in, out; /* descriptors of both folders */
    struct numbers copied;
    struct backup_tally *tally;
};

/* Attempts a copy. Returns 1 if the manifest has changed meanwhile, and -1 with e on error. */
static int copy_once(struct journal_copy *c, struct err *e)
{
    struct numbers named = {0};
    bool older;
    int rc = files_read_manifest(c->in, &named, &older, e);

    if (rc == 0 && named.n == 0)
        rc = err_set(e, ERR_IO, "no journal: a folder with a MANIFEST is one");
    if (rc == 0)
        rc = copy_named(c->from, c->to, &named, &c->copied, c->tally, e);
    if (rc == 0)
        rc = is_changed(c->in, &named, e);
    if (rc == 0)
        rc = finish_copy(c->out, &named, e);
    vec_done(&named);
    return rc;
}

int backup_copy_journal(const char *from, const char *to, struct backup_tally *tally, struct err *e)
{
    struct journal_copy c = {.from = from, .to = to, .out = -1, .tally = tally};
    int rc = -1;

    c.in = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c.in < 0)
        return err_sys(e, ERR_IO, "cannot open %s", from);
    c.out = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c.out < 0)
        (void)err_sys(e, ERR_IO, "cannot open %s", to);
    else
        rc = 1;
    for (int i = 0; i < TRIES && rc == 1; i++)
        rc = copy_once(&c, e);
    if (rc == 1)
        (void)err_set(e, ERR_IO, "%s changes faster than it can be copied", from);
    if (rc == 0 && fsync(c.out))
        rc = err_sys(e, ERR_IO, "cannot sync %s", to);
    vec_done(&c.copied);
    if (c.out >= 0)
        (void)close(c.out);
    (void)close(c.in);
    return rc ? -1 : 0;
}

/* --- journals of a state folder --- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the folder if it has a manifest. */
static void add_folder(const char *state_dir, const char *name, struct backup_folders *ret)
{
    char *folder = path_join(state_dir, name);
    char *manifest = path_join(folder, "MANIFEST");

    if (access(manifest, F_OK) == 0)
        *vec_push(ret) = folder;
    else
        free(folder);
    free(manifest);
}

int backup_find_journals(const char *state_dir, struct backup_folders *ret, struct err *e)
{
    DIR *d = opendir(state_dir);
    const struct dirent *entry;
    int rc = 0;

    if (!d)
        return err_sys(e, ERR_IO, "cannot open the folder");
    while ((entry = file_next_entry(d)) != NULL) {
        if (strncmp(entry->d_name, "worker-", 7) == 0 || strcmp(entry->d_name, "dispatcher") == 0)
            add_folder(state_dir, entry->d_name, ret);
    }
    if (errno)
        rc = err_sys(e, ERR_IO, "cannot read the folder");
    (void)closedir(d);
    if (ret->n > 0) /* "dispatcher" sorts before "worker-N" */
        qsort(ret->at, ret->n, sizeof(*ret->at), compare_paths);
    return rc;
}

void backup_free_folders(struct backup_folders *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->at[i]);
    vec_done(v);
}
