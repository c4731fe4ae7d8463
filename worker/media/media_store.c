/*
 * Stores images (media_store.h). The steps of a put:
 *
 *   is_whole            finds the session's file with these bytes
 *   media_make_folders  makes missing folders; check_limit_of checks the session's limit
 *   link_copy           links the node's copy if it has the image
 *   file_write          else writes the image under the session's name
 *   share_copy          links the written file as the node's copy
 *   make_durable        with `sync`, makes the names durable, also those of a file that a killed
 *                       process left; if that fails, removes a new name
 *
 * Workers of a node put at the same time without a common lock: one link() succeeds, and rename()
 * of a second link replaces a file that a power failure had cut. The threads of one worker lock a
 * name until it is durable (media_lock_name): a put that finds the file must not return before.
 * They also lock the count of a session's notes, so that no session exceeds MEDIA_PINS_MAX. The
 * node's copy adds one to the number of links, so a copy with only one link is unused (drop_copy).
 */
#include "worker/media/media_store_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/sha256.h"
#include "common/os/file.h"

enum { PIECE_BYTES = 64 << 10, NAME_LOCKS = 64, DURABLE_PATHS = 4096 };

struct media_store *media_store_new(const struct media_options *o)
{
    struct media_store *m = mem_zalloc(sizeof(*m));
    struct buf root = {0};

    buf_printf(&root, "%s/media", o->state_dir);
    m->root = mem_strndup(root.p, root.len);
    m->sync = o->sync;
    m->session_bytes = o->session_bytes;
    m->on_stored = o->on_stored;
    m->ctx = o->ctx;
    m->names = mem_zalloc((NAME_LOCKS + 1) * sizeof(*m->names));
    for (size_t i = 0; i <= NAME_LOCKS; i++)
        CHECK(pthread_mutex_init(&m->names[i], NULL) == 0);
    m->pinning = &m->names[NAME_LOCKS];
    m->durable = mem_zalloc(DURABLE_PATHS * sizeof(*m->durable));
    buf_done(&root);
    return m;
}

void media_store_free(struct media_store *m)
{
    if (!m)
        return;
    for (size_t i = 0; i <= NAME_LOCKS; i++)
        (void)pthread_mutex_destroy(&m->names[i]);
    free(m->names);
    free(m->durable);
    free(m->root);
    free(m);
}

/* --- names --- */

void media_fill_paths(const struct media_store *m, struct str id, struct str media,
                      struct media_place *ret)
{
    int n = (int)media.len;

    (void)snprintf(ret->folder, MEDIA_PATH_MAX, "%s/sessions/%.*s", m->root, (int)id.len, id.p);
    (void)snprintf(ret->own, MEDIA_PATH_MAX, "%s/sessions/%.*s/%.*s", m->root, (int)id.len, id.p, n,
                   media.p);
    (void)snprintf(ret->part, MEDIA_PATH_MAX, "%s/sessions/%.*s/%.*s.%d.part", m->root, (int)id.len,
                   id.p, n, media.p, (int)gettid());
    (void)snprintf(ret->shelf, MEDIA_PATH_MAX, "%s/%.2s", m->root, media.p);
    (void)snprintf(ret->copy, MEDIA_PATH_MAX, "%s/%.2s/%.*s", m->root, media.p, n, media.p);
}

pthread_mutex_t *media_lock_name(const struct media_store *m, const struct media_place *p)
{
    pthread_mutex_t *lock = &m->names[str_hash(str_cstr(p->own), 0) % NAME_LOCKS];

    CHECK(pthread_mutex_lock(lock) == 0);
    return lock;
}

void media_unlock_name(pthread_mutex_t *lock)
{
    CHECK(pthread_mutex_unlock(lock) == 0);
}

void media_report_stored(const struct media_store *m, struct str session_id, struct str name)
{
    if (m->on_stored)
        m->on_stored(m->ctx, session_id, name);
}

int media_fail_storage(struct err *e)
{
    bool full = errno == ENOSPC || errno == EDQUOT;

    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_STORAGE_FAILED, "an image cannot be stored");
}

static bool make_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

int media_make_folders(const struct media_store *m, const struct media_place *p, struct err *e)
{
    char sessions[MEDIA_PATH_MAX];

    (void)snprintf(sessions, sizeof(sessions), "%s/sessions", m->root);
    if (make_folder(p->folder) && make_folder(p->shelf))
        return 0;
    if (make_folder(m->root) && make_folder(sessions) && make_folder(p->shelf) &&
        make_folder(p->folder))
        return 0;
    return media_fail_storage(e);
}

bool media_is_durable(const struct media_store *m, const char *path)
{
    uint64_t hash = str_hash(str_cstr(path), 1) | 1;

    return !m->sync || atomic_load(&m->durable[hash / 2 % DURABLE_PATHS]) == hash;
}

void media_mark_durable(const struct media_store *m, const char *path)
{
    uint64_t hash = str_hash(str_cstr(path), 1) | 1;

    atomic_store(&m->durable[hash / 2 % DURABLE_PATHS], hash);
}

int media_sync_file(const struct media_store *m, const char *path)
{
    int fd, rc;

    if (media_is_durable(m, path))
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    rc = fd >= 0 ? fsync(fd) : -1;
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

int media_sync_names(const struct media_store *m, const struct media_place *p, struct err *e)
{
    char sessions[MEDIA_PATH_MAX], state_dir[MEDIA_PATH_MAX];

    if (!m->sync)
        return 0;
    (void)snprintf(sessions, sizeof(sessions), "%s/sessions", m->root);
    (void)snprintf(state_dir, sizeof(state_dir), "%s/..", m->root);
    if (file_sync_folder(p->folder) || file_sync_folder(sessions) || file_sync_folder(m->root) ||
        (!media_is_durable(m, m->root) && file_sync_folder(state_dir)))
        return media_fail_storage(e);
    media_mark_durable(m, m->root);
    return 0;
}

/* Reports whether the file contains exactly these bytes. */
static bool reads_as(int fd, struct str bytes)
{
    struct stat st;
    struct media_file f = {.fd = fd, .left = bytes.len};
    struct buf piece = {0};
    bool same = fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes.len;

    for (size_t at = 0; same && at < bytes.len; at += piece.len) {
        buf_clear(&piece);
        same = media_file_read(&f, PIECE_BYTES, &piece) == 0 &&
               memcmp(piece.p, bytes.p + at, piece.len) == 0;
    }
    buf_done(&piece);
    return same;
}

/* Reports whether the file exists with these bytes, with `sync` on the disk. False if it was cut
 * off or changed. */
static bool is_whole(const struct media_store *m, const char *path, struct str bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool same = fd >= 0 && reads_as(fd, bytes) && (media_is_durable(m, path) || fsync(fd) == 0);

    if (fd >= 0)
        (void)close(fd);
    return same;
}

/* Replaces `to` by a link to `from`, through `part`. Returns false on error. */
static bool replace_file(const char *from, const char *part, const char *to)
{
    bool done;

    (void)unlink(part); /* left by a killed process */
    done = link(from, part) == 0 && rename(part, to) == 0;
    (void)unlink(part); /* rename does not remove `part` if both names are one file */
    return done;
}

/* Links the node's copy under the session's name. Replaces a file that was cut off. Returns false
 * if there is no valid copy. */
static bool link_copy(const struct media_store *m, const struct media_place *p, struct str bytes)
{
    return is_whole(m, p->copy, bytes) && replace_file(p->copy, p->part, p->own);
}

/* Links the session's file as the node's copy, or uses the copy that a different process has just
 * linked. Replaces a copy that was cut off. */
static void share_copy(const struct media_store *m, const struct media_place *p, struct str bytes)
{
    if (link(p->own, p->copy) == 0 || errno != EEXIST)
        return; /* without a node's copy, the session's own file is enough */
    if (is_whole(m, p->copy, bytes))
        (void)replace_file(p->copy, p->part, p->own);
    else
        (void)replace_file(p->own, p->part, p->copy);
}

bool media_is_pin(struct str name)
{
    return str_ends(name, PIN_END) && sha256_is_hex(str_sub(name, 0, name.len - PIN_END.len));
}

bool media_is_file_name(struct str name)
{
    return sha256_is_hex(name) || media_is_pin(name);
}

int media_sum_folder(const char *path, bool notes, uint64_t *ret, struct err *e)
{
    const struct dirent *entry;
    DIR *d = opendir(path);
    struct stat st;
    int rc;

    *ret = 0;
    if (!d)
        return errno == ENOENT ? 0 : media_fail_storage(e); /* the session has no images yet */
    while ((entry = file_next_entry(d)))
        if (notes)
            *ret += media_is_pin(str_cstr(entry->d_name));
        else if (entry->d_name[0] != '.' && fstatat(dirfd(d), entry->d_name, &st, 0) == 0)
            *ret += (uint64_t)st.st_size;
    rc = errno ? media_fail_storage(e) : 0;
    (void)closedir(d);
    return rc;
}

static int check_limit_of(const struct media_store *m, const struct media_place *p, size_t more,
                          struct err *e)
{
    uint64_t bytes = 0;

    if (m->session_bytes > 0 && media_sum_folder(p->folder, false, &bytes, e) != 0)
        return -1;
    if (m->session_bytes == 0 || bytes + more <= m->session_bytes)
        return 0;
    return err_set(e, ERR_BODY_TOO_LARGE,
                   "the session's images are more than %llu bytes (--max-session-media-bytes)",
                   (unsigned long long)m->session_bytes);
}

/* Makes the image's name durable. If that fails, removes a new name, so that a later put does not
 * take the image as stored. */
static int make_durable(const struct media_store *m, const struct media_place *p, bool is_new,
                        struct err *e)
{
    if (media_sync_names(m, p, e) == 0) {
        media_mark_durable(m, p->own);
        return 0;
    }
    if (is_new)
        (void)unlink(p->own);
    return -1;
}

/* Does all steps of a put except make_durable. */
static int write_image(const struct media_store *m, const struct media_place *p, struct str bytes,
                       struct err *e)
{
    if (media_make_folders(m, p, e) != 0 || check_limit_of(m, p, bytes.len, e) != 0)
        return -1;
    if (link_copy(m, p, bytes))
        return 0;
    if (file_write(p->own, p->part, bytes, m->sync) != 0)
        return media_fail_storage(e);
    share_copy(m, p, bytes);
    return 0;
}

int media_store_put(const struct media_store *m, struct str session_id, struct str media,
                    struct str bytes, struct err *e)
{
    struct media_place p = {0};
    pthread_mutex_t *lock;
    bool is_new;
    int rc;

    media_fill_paths(m, session_id, media, &p);
    lock = media_lock_name(m, &p);
    is_new = !is_whole(m, p.own, bytes);
    rc = is_new ? write_image(m, &p, bytes, e) : 0;
    if (rc == 0 && (is_new || !media_is_durable(m, p.own)))
        rc = make_durable(m, &p, is_new, e);
    media_unlock_name(lock);
    if (rc == 0)
        media_report_stored(m, session_id, media);
    return rc;
}

int media_store_bring(const struct media_store *m, struct str session_id, struct str media,
                      struct str bytes, struct err *e)
{
    struct media_place p = {0};

    media_fill_paths(m, session_id, media, &p);
    if (write_image(m, &p, bytes, e) != 0)
        return -1;
    media_report_stored(m, session_id, media);
    return 0;
}

int media_store_settle(const struct media_store *m, struct str session_id, struct err *e)
{
    struct media_place p = {0};

    media_fill_paths(m, session_id, STR("00"), &p);
    return media_sync_names(m, &p, e);
}

int media_fail_reading(struct err *e)
{
    if (errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "the session has no such image");
    return err_set(e, ERR_STORAGE_FAILED, "an image cannot be read back");
}

/* --- reading piece by piece --- */

int media_store_open(const struct media_store *m, struct str session_id, struct str media,
                     struct media_file *ret, struct err *e)
{
    struct media_place p = {0};
    struct stat st;

    media_fill_paths(m, session_id, media, &p);
    ret->fd = open(p.own, O_RDONLY | O_CLOEXEC);
    if (ret->fd < 0 || fstat(ret->fd, &st) != 0) {
        (void)media_fail_reading(e);
        media_file_close(ret);
        return -1;
    }
    (void)posix_fadvise(ret->fd, 0, 0, POSIX_FADV_WILLNEED);
    ret->left = (uint64_t)st.st_size;
    return 0;
}

int media_file_read(struct media_file *f, size_t n, struct buf *out)
{
    size_t want = MIN_OF(n, f->left);

    while (want > 0) {
        ssize_t got = read(f->fd, buf_reserve(out, want), want);

        if (got == 0 || (got < 0 && errno != EINTR))
            return -1;
        out->len += got > 0 ? (size_t)got : 0;
        want -= got > 0 ? (size_t)got : 0;
        f->left -= got > 0 ? (uint64_t)got : 0;
    }
    return 0;
}

void media_file_close(struct media_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}

/* Hashes the rest of the file. Returns -1 if the file is too short. */
static int hash_file(struct media_file *f, char ret[SHA256_HEX_LEN + 1])
{
    struct sha256 *h = sha256_begin();
    struct buf piece = {0};
    int rc = 0;

    while (rc == 0 && f->left > 0) {
        buf_clear(&piece);
        rc = media_file_read(f, PIECE_BYTES, &piece);
        sha256_add(h, buf_str(&piece));
    }
    sha256_end(h, ret);
    buf_done(&piece);
    return rc;
}

int media_store_check(const struct media_store *m, struct str session_id, struct str media,
                      struct err *e)
{
    char hash[SHA256_HEX_LEN + 1];
    struct media_file f;
    int rc;

    if (media_store_open(m, session_id, media, &f, e) != 0)
        return -1;
    rc = hash_file(&f, hash);
    media_file_close(&f);
    if (rc == 0 && str_eq_c(media, hash))
        return 0;
    return err_set(e, ERR_STORAGE_FAILED, "an image has changed on the disk");
}

const char *media_store_path(const struct media_store *m, struct arena *a, struct str session_id,
                             struct str media)
{
    struct media_place p = {0};

    media_fill_paths(m, session_id, media, &p);
    return arena_cstr(a, str_cstr(p.own));
}

/* Links every image and note of `d`, the folder of session `from`, into the folder of session
 * `to`. */
static int lend_all(const struct media_store *m, DIR *d, struct str from, struct str to,
                    struct err *e)
{
    const struct dirent *entry;

    while ((entry = file_next_entry(d))) {
        struct str media = str_cstr(entry->d_name);
        struct media_place old = {0}, new = {0};

        /* . and .., and files that are being written */
        if (!media_is_file_name(media))
            continue;
        media_fill_paths(m, from, media, &old);
        media_fill_paths(m, to, media, &new);
        if (media_make_folders(m, &new, e) != 0)
            return -1;
        if (media_sync_file(m, old.own) != 0 || (link(old.own, new.own) != 0 && errno != EEXIST))
            return media_fail_storage(e);
        media_report_stored(m, to, media);
    }
    return errno ? media_fail_storage(e) : 0;
}

bool media_store_holds(const struct media_store *m, struct str session_id)
{
    struct media_place p = {0};
    struct stat st;

    media_fill_paths(m, session_id, STR("00"), &p);
    return stat(p.folder, &st) == 0;
}

int media_store_lend(const struct media_store *m, struct str from, struct str to, struct err *e)
{
    struct media_place p = {0};
    DIR *d;
    int rc;

    media_fill_paths(m, from, STR("00"), &p);
    d = opendir(p.folder);
    if (!d)
        return errno == ENOENT ? 0 : media_fail_storage(e);
    rc = lend_all(m, d, from, to, e);
    (void)closedir(d);
    media_fill_paths(m, to, STR("00"), &p);
    return rc == 0 ? media_sync_names(m, &p, e) : -1;
}

/* --- sweeping --- */

/* Removes the node's copy if no session uses it. */
static void drop_copy(const char *copy)
{
    struct stat st;

    if (stat(copy, &st) == 0 && st.st_nlink == 1)
        (void)unlink(copy);
}

void media_store_drop(const struct media_store *m, struct str session_id)
{
    struct media_place p = {0};
    const struct dirent *entry;
    DIR *d;

    media_fill_paths(m, session_id, STR("00"), &p);
    d = opendir(p.folder);
    while (d && (entry = file_next_entry(d))) {
        if (entry->d_name[0] == '.')
            continue;
        media_fill_paths(m, session_id, str_cstr(entry->d_name), &p);
        (void)unlink(p.own);
        drop_copy(p.copy);
    }
    if (file_end_entries(d, p.folder) == 0)
        (void)rmdir(p.folder);
}

size_t media_store_sweep(const struct media_store *m, const struct media_sweep *w)
{
    char path[MEDIA_PATH_MAX];
    const struct dirent *entry;
    size_t n = 0;
    DIR *d;

    (void)snprintf(path, sizeof(path), "%s/sessions", m->root);
    d = opendir(path);
    while (d && (entry = file_next_entry(d))) {
        struct str id = str_cstr(entry->d_name);

        if (entry->d_name[0] == '.' || !w->ours(w->ctx, id) || w->kept(w->ctx, id))
            continue;
        media_store_drop(m, id);
        n++;
    }
    (void)file_end_entries(d, path);
    return n;
}
