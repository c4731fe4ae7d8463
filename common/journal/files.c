/* The manifest is replaced by renaming, so after a crash it is the old or the new one. A lock on
 * the folder keeps a second process out. */

#include "common/journal/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/journal/format.h"
#include "common/journal/segment.h"
#include "common/os/file.h"
#include "common/os/file_lock.h"

enum { LOCK_PAUSE_MS = 20 };

#define RESERVE_NAME "reserve"
#define MANIFEST_NAME "rollgate-journal "

/* Makes the folder and its parents, as mkdir -p does. */
static int make_path(const char *dir)
{
    char path[4096];
    size_t len = strlen(dir);

    if (len >= sizeof(path))
        return -1;
    memcpy(path, dir, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        path[i] = '\0';
        if (mkdir(path, 0700) && errno != EEXIST)
            return -1;
        path[i] = i == len ? '\0' : '/';
    }
    return 0;
}

int files_open_dir(const char *dir, struct err *e)
{
    int fd;

    if (make_path(dir))
        return err_sys(e, ERR_IO, "cannot make the journal folder");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open the journal folder");
    return fd;
}

bool files_in_use(int dirfd)
{
    if (flock(dirfd, LOCK_SH | LOCK_NB))
        return true; /* it is in use, or the file system refuses locks */
    (void)flock(dirfd, LOCK_UN);
    return false;
}

/* The wait is for a replaced worker that is about to end. */
int files_lock(int dirfd, uint64_t wait_ms, struct err *e)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};
    int rc;

    while ((rc = file_lock(dirfd, false, "the journal", e)) == 1) {
        if (wait_ms < LOCK_PAUSE_MS)
            return err_set(e, ERR_IO,
                           "the journal is in use by another process (each gateway needs its own "
                           "--state-dir)");
        (void)nanosleep(&pause, NULL);
        wait_ms -= LOCK_PAUSE_MS;
    }
    return rc;
}

static void segment_name(uint32_t number, char out[32])
{
    (void)snprintf(out, 32, "seg-%08u", number);
}

/* The first line of a manifest. */
struct manifest_title {
    uint64_t format;
    struct str since; /* the first version that reads the format; empty: not named */
    size_t len;       /* length of the line */
};

/* Parses the first line of a manifest. Returns -1 if it is not one of ours. */
static int parse_title(struct str text, struct manifest_title *ret)
{
    struct str name = STR(MANIFEST_NAME);
    size_t end = str_find(str_sub(text, 0, 256), STR("\n"), 0), space;
    struct str rest;

    if (!str_starts(text, name) || end == SIZE_MAX)
        return -1;
    rest = str_sub(text, name.len, end - name.len);
    space = MIN_OF(str_find(rest, STR(" "), 0), rest.len);
    ret->since = str_sub(rest, space + 1, SIZE_MAX);
    ret->len = end + 1;
    return str_to_u64(str_sub(rest, 0, space), UINT32_MAX, &ret->format) ? -1 : 0;
}

static uint64_t own_format(void)
{
    struct manifest_title own = {0};

    (void)parse_title(str_cstr(journal_format_line), &own);
    return own.format;
}

static bool is_version(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        if ((text.p[i] < '0' || text.p[i] > '9') && text.p[i] != '.')
            return false;
    }
    return text.len > 0;
}

/* Fails with ERR_UNSUPPORTED and the first version that reads the journal. Returns -1. */
static int refuse_format(const struct manifest_title *title, struct err *e)
{
    struct str since = is_version(title->since) ? title->since : STR("a later one");

    return err_set(e, ERR_UNSUPPORTED,
                   "the journal has format %llu; the first version that reads it is %.*s; this is "
                   "rollgate " RG_VERSION ", which reads format %llu",
                   (unsigned long long)title->format, (int)since.len, since.p,
                   (unsigned long long)own_format());
}

/* Parses a manifest. The error of a later format differs from that of a damaged manifest. */
static int parse_manifest(struct str text, struct numbers *ret, bool *older, struct err *e)
{
    struct manifest_title title = {0};

    if (parse_title(text, &title))
        return err_set(e, ERR_IO, "the journal's manifest is not one of ours");
    if (title.format > own_format())
        return refuse_format(&title, e);
    *older = !str_starts(text, str_cstr(journal_format_line));
    text = str_sub(text, title.len, SIZE_MAX);
    while (text.len > 0) {
        size_t end = str_find(text, STR("\n"), 0);
        uint64_t n;

        if (end == SIZE_MAX || str_to_u64(str_sub(text, 0, end), UINT32_MAX, &n))
            return err_set(e, ERR_IO, "the journal's manifest is damaged");
        *vec_push(ret) = (uint32_t)n;
        text = str_sub(text, end + 1, SIZE_MAX);
    }
    return 0;
}

int files_read_manifest(int dirfd, struct numbers *ret, bool *older, struct err *e)
{
    int fd = openat(dirfd, "MANIFEST", O_RDONLY | O_CLOEXEC);
    struct str bytes = {0};
    int rc;

    *older = false;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open the journal's manifest");
    rc = files_map(fd, true, &bytes, e);
    if (rc == 0)
        rc = parse_manifest(bytes, ret, older, e);
    files_unmap(bytes);
    (void)close(fd);
    return rc;
}

/* Writes MANIFEST.new, syncs it if requested, and renames it. */
int files_write_manifest(int dirfd, const uint32_t *numbers, size_t n, bool sync, struct err *e)
{
    struct buf text = {0};
    struct iovec part;
    int fd = openat(dirfd, "MANIFEST.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = -1;

    buf_puts(&text, journal_format_line);
    for (size_t i = 0; i < n; i++)
        buf_printf(&text, "%u\n", numbers[i]);
    part = (struct iovec){text.p, text.len};
    if (fd < 0) {
        (void)err_sys(e, errno == ENOSPC ? ERR_STORAGE_FULL : ERR_IO,
                      "cannot write the journal's manifest");
        goto out;
    }
    if (files_append(fd, &part, 1, e))
        goto out;
    if ((sync && fdatasync(fd)) || renameat(dirfd, "MANIFEST.new", dirfd, "MANIFEST")) {
        (void)err_sys(e, ERR_IO, "cannot replace the journal's manifest");
        goto out;
    }
    rc = 0;
out:
    if (fd >= 0)
        (void)close(fd);
    buf_done(&text);
    return rc;
}

bool files_has_manifest(int dirfd)
{
    return faccessat(dirfd, "MANIFEST", F_OK, 0) == 0 || errno != ENOENT;
}

static uint64_t segment_bytes(int dirfd, uint32_t number)
{
    struct stat st;
    char name[32];

    segment_name(number, name);
    return fstatat(dirfd, name, &st, 0) == 0 ? (uint64_t)st.st_size : 0;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

int files_list_segments(int dirfd, struct numbers *ret, struct err *e)
{
    DIR *d = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *entry;
    int rc = 0;

    if (!d)
        return err_sys(e, ERR_IO, "cannot read the journal's folder");
    while ((entry = file_next_entry(d)) != NULL) {
        struct str name = str_cstr(entry->d_name);
        uint64_t number;

        if (str_starts(name, STR("seg-")) &&
            str_to_u64(str_sub(name, 4, SIZE_MAX), UINT32_MAX, &number) == 0)
            *vec_push(ret) = (uint32_t)number;
    }
    if (errno)
        rc = err_sys(e, ERR_IO, "cannot read the journal's folder");
    (void)closedir(d);
    if (ret->n > 0)
        qsort(ret->at, ret->n, sizeof(*ret->at), compare_numbers);
    return rc;
}

int files_check_manifest(int dirfd, struct err *e)
{
    struct numbers all = {0};
    uint64_t bytes = 0;
    int rc = 0;

    if (!files_has_manifest(dirfd))
        rc = files_list_segments(dirfd, &all, e);
    for (size_t i = 0; i < all.n && rc == 0; i++)
        bytes = MAX_OF(bytes, segment_bytes(dirfd, all.at[i]));
    vec_done(&all);
    if (rc == 0 && bytes > SEGMENT_HEAD)
        rc = err_set(e, ERR_IO,
                     "the journal has segments and no MANIFEST (`rollgate journal repair "
                     "DIR` lists the loss and continues)");
    return rc;
}

void files_remove_strays(int dirfd, const uint32_t *numbers, size_t n)
{
    struct numbers all = {0};
    struct err e;

    (void)files_list_segments(dirfd, &all, &e);
    for (size_t k = 0; k < all.n; k++) {
        bool live = false;

        for (size_t i = 0; i < n; i++)
            live = live || numbers[i] == all.at[k];
        if (!live)
            files_remove_segment(dirfd, all.at[k]);
    }
    vec_done(&all);
}

/* Removes the file if its head cannot be written. Otherwise each attempt would use up more of a
 * full disk. */
int files_create_segment(int dirfd, uint32_t number, struct err *e)
{
    char name[32];
    unsigned char head[SEGMENT_HEAD];
    struct iovec part = {head, sizeof(head)};
    int fd;

    segment_name(number, name);
    fd = openat(dirfd, name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno == ENOSPC ? ERR_STORAGE_FULL : ERR_IO,
                       "cannot make a journal segment");
    segment_head(number, head);
    if (files_append(fd, &part, 1, e)) {
        (void)close(fd);
        files_remove_segment(dirfd, number);
        return -1;
    }
    return fd;
}

int files_open_segment(int dirfd, uint32_t number, bool writable, struct err *e)
{
    char name[32];
    int fd;

    segment_name(number, name);
    fd = openat(dirfd, name, (writable ? O_RDWR | O_APPEND : O_RDONLY) | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, ERR_IO,
                       "cannot open journal segment %u (`rollgate journal repair DIR` "
                       "lists the loss and continues)",
                       number);
    return fd;
}

static void suffixed_name(uint32_t number, const char *suffix, char out[64])
{
    (void)snprintf(out, 64, "seg-%08u%s", number, suffix);
}

/* Reports whether both names are the same file: an earlier, failed repair has kept the file
 * already. */
static bool is_same_file(int dirfd, const char *a, const char *b)
{
    struct stat x, y;

    return fstatat(dirfd, a, &x, 0) == 0 && fstatat(dirfd, b, &y, 0) == 0 && x.st_ino == y.st_ino;
}

int files_keep_manifest(int dirfd, struct err *e)
{
    static const char kept[] = "MANIFEST.before-repair";

    if (linkat(dirfd, "MANIFEST", dirfd, kept, 0) == 0 || errno == ENOENT ||
        is_same_file(dirfd, "MANIFEST", kept))
        return 0;
    return err_sys(e, ERR_IO, "cannot keep MANIFEST as %s (move an older one away first)", kept);
}

int files_keep_segment(int dirfd, uint32_t number, struct err *e)
{
    char name[32], kept[64], fresh[64];
    unsigned char head[SEGMENT_HEAD];
    struct iovec part = {head, sizeof(head)};
    int fd;

    segment_name(number, name);
    suffixed_name(number, ".before-repair", kept);
    suffixed_name(number, ".repaired", fresh);
    if (linkat(dirfd, name, dirfd, kept, 0) && !is_same_file(dirfd, name, kept))
        return err_sys(e, ERR_IO, "cannot keep %s as %s (move an older one away first)", name,
                       kept);
    fd = openat(dirfd, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot make %s", fresh);
    segment_head(number, head);
    if (files_append(fd, &part, 1, e)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int files_replace_segment(int dirfd, uint32_t number, int fd, struct err *e)
{
    char name[32], fresh[64];

    segment_name(number, name);
    suffixed_name(number, ".repaired", fresh);
    return fdatasync(fd) || renameat(dirfd, fresh, dirfd, name)
               ? err_sys(e, ERR_IO, "cannot replace %s", name)
               : 0;
}

/* The reserve is a file with allocated blocks, which is never written to. */
int files_make_reserve(int dirfd, size_t bytes)
{
    int fd = openat(dirfd, RESERVE_NAME, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), rc;

    if (fd < 0)
        return -1;
    rc = fallocate(fd, 0, 0, (off_t)bytes);
    (void)close(fd);
    if (rc)
        files_free_reserve(dirfd);
    return rc ? -1 : 0;
}

void files_free_reserve(int dirfd)
{
    (void)unlinkat(dirfd, RESERVE_NAME, 0);
}

void files_empty_segment(int dirfd, uint32_t number)
{
    struct err e;
    int fd = files_open_segment(dirfd, number, true, &e);

    if (fd < 0)
        return;
    (void)!ftruncate(fd, SEGMENT_HEAD);
    (void)close(fd);
}

void files_remove_segment(int dirfd, uint32_t number)
{
    char name[32];

    segment_name(number, name);
    (void)unlinkat(dirfd, name, 0);
}

int files_map(int fd, bool now, struct str *ret, struct err *e)
{
    struct stat st;
    void *p;

    *ret = (struct str){0};
    if (fstat(fd, &st))
        return err_sys(e, ERR_IO, "cannot look at a journal file");
    if (st.st_size == 0)
        return 0;
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | (now ? MAP_POPULATE : 0), fd, 0);
    if (p == MAP_FAILED)
        return err_sys(e, ERR_IO, "cannot map a journal file");
    *ret = str_of(p, (size_t)st.st_size);
    return 0;
}

/* Reads up to `want` bytes. Returns the number of bytes that the file still has, or -1 with ERR_IO.
 */
static ssize_t read_up_to(int fd, char *to, size_t want, struct err *e)
{
    size_t at = 0;
    struct stat st;

    while (at < want) {
        ssize_t n = pread(fd, to + at, want - at, (off_t)at);

        if (n < 0)
            return err_sys(e, ERR_IO, "cannot read a journal file");
        if (n == 0)
            break;
        at += (size_t)n;
    }
    if (at == want)
        return (ssize_t)at;
    if (fstat(fd, &st)) /* the file was truncated while it was read */
        return err_sys(e, ERR_IO, "cannot look at a journal file");
    return (ssize_t)MIN_OF(at, (size_t)st.st_size);
}

int files_copy(int fd, struct str *ret, struct err *e)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), kept;
    struct stat st;
    ssize_t n;
    char *p;

    *ret = (struct str){0};
    if (fstat(fd, &st))
        return err_sys(e, ERR_IO, "cannot look at a journal file");
    if (st.st_size == 0)
        return 0;
    /* cppcheck-suppress invalidFunctionArg ; -1 goes with MAP_ANONYMOUS */
    p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_sys(e, ERR_IO, "cannot make room for a journal file");
    n = read_up_to(fd, p, (size_t)st.st_size, e);
    kept = n > 0 ? ((size_t)n + page - 1) / page * page : 0;
    if (kept < (size_t)st.st_size)
        (void)munmap(p + kept, (size_t)st.st_size - kept);
    if (n > 0)
        *ret = str_of(p, (size_t)n);
    return n < 0 ? -1 : 0;
}

void files_unmap(struct str bytes)
{
    if (bytes.p)
        (void)munmap((void *)(uintptr_t)bytes.p, bytes.len);
}

int files_append(int fd, struct iovec *parts, int n, struct err *e)
{
    while (n > 0) {
        ssize_t done = writev(fd, parts, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_sys(
                e, errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? ERR_STORAGE_FULL : ERR_IO,
                "the journal cannot be written");
        while (n > 0 && (size_t)done >= parts->iov_len) {
            done -= (ssize_t)parts->iov_len;
            parts++;
            n--;
        }
        if (n > 0) {
            parts->iov_base = (char *)parts->iov_base + done;
            parts->iov_len -= (size_t)done;
        }
    }
    return 0;
}
