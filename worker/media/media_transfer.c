/* Files of sessions that go to the store of a fleet, or come from there (media_store.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/sha256.h"
#include "common/os/file.h"
#include "worker/media/media_store_internal.h"

struct media_arrival {
    const struct media_store *m;
    struct media_place at;
    struct sha256 *hash; /* of the bytes so far; NULL: a note, whose name is not its hash */
    int fd;
};

/* Reports whether the names, which come from the store of a fleet, stay in the session's folder. */
static bool are_safe(struct str session_id, struct str name)
{
    return media_is_file_name(name) && session_id.len > 0 && session_id.p[0] != '.' &&
           str_find(session_id, STR("/"), 0) == SIZE_MAX;
}

bool media_store_has(const struct media_store *m, struct str session_id, struct str name)
{
    struct media_place p = {0};

    if (!are_safe(session_id, name))
        return false;
    media_fill_paths(m, session_id, name, &p);
    return access(p.own, F_OK) == 0;
}

/* A part of a file has all these parameters. NOLINTNEXTLINE(readability-function-size) */
int64_t media_store_read(const struct media_store *m, struct str session_id, struct str name,
                         uint64_t at, size_t n, struct buf *out, struct err *e)
{
    struct media_file f = {.fd = -1};
    int64_t size = -1;

    if (!are_safe(session_id, name))
        return err_set(e, ERR_NOT_FOUND, "the session has no such image");
    if (media_store_open(m, session_id, name, &f, e) != 0)
        return -1;
    if (at >= f.left || lseek(f.fd, (off_t)at, SEEK_SET) == (off_t)at) {
        size = (int64_t)f.left;
        f.left -= MIN_OF(at, f.left);
    }
    if (size >= 0 && media_file_read(&f, n, out) != 0)
        size = -1;
    media_file_close(&f);
    return size >= 0 ? size : err_set(e, ERR_STORAGE_FAILED, "an image cannot be read back");
}

static void each_of_session(const struct media_store *m, struct str id,
                            void (*fn)(void *ctx, struct str session_id, struct str name),
                            void *ctx)
{
    struct media_place p = {0};
    const struct dirent *entry;
    DIR *d;

    media_fill_paths(m, id, STR("00"), &p);
    d = opendir(p.folder);
    while (d && (entry = file_next_entry(d)))
        if (media_is_file_name(str_cstr(entry->d_name)))
            fn(ctx, id, str_cstr(entry->d_name));
    (void)file_end_entries(d, p.folder);
}

void media_store_each(const struct media_store *m, bool (*wants)(void *ctx, struct str session_id),
                      void (*fn)(void *ctx, struct str session_id, struct str name), void *ctx)
{
    char path[MEDIA_PATH_MAX];
    const struct dirent *entry;
    DIR *d;

    (void)snprintf(path, sizeof(path), "%s/sessions", m->root);
    d = opendir(path);
    while (d && (entry = file_next_entry(d)))
        if (entry->d_name[0] != '.' && wants(ctx, str_cstr(entry->d_name)))
            each_of_session(m, str_cstr(entry->d_name), fn, ctx);
    (void)file_end_entries(d, path);
}

struct media_arrival *media_arrival_new(const struct media_store *m, struct str session_id,
                                        struct str name, struct err *e)
{
    struct media_arrival *a;

    if (!are_safe(session_id, name)) {
        (void)err_set(e, ERR_IO, "the fleet's store has a file of an unknown form");
        return NULL;
    }
    a = mem_zalloc(sizeof(*a));
    a->m = m;
    a->fd = -1;
    media_fill_paths(m, session_id, name, &a->at);
    if (media_make_folders(m, &a->at, e) != 0) {
        media_arrival_free(a);
        return NULL;
    }
    a->hash = media_is_pin(name) ? NULL : sha256_begin();
    a->fd = open(a->at.part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (a->fd >= 0)
        return a;
    (void)media_fail_storage(e);
    media_arrival_free(a);
    return NULL;
}

struct str media_arrival_path(const struct media_arrival *a)
{
    return str_cstr(a->at.own + strlen(a->m->root) + strlen("/sessions/"));
}

int media_arrival_add(struct media_arrival *a, struct str bytes, struct err *e)
{
    if (file_write_all(a->fd, bytes))
        return media_fail_storage(e);
    if (a->hash)
        sha256_add(a->hash, bytes);
    return 0;
}

int media_arrival_finish(struct media_arrival *a, struct err *e)
{
    bool is_image = a->hash != NULL;
    char found[SHA256_HEX_LEN + 1];

    if (is_image)
        sha256_end(a->hash, found);
    a->hash = NULL;
    if (is_image && !str_ends(str_cstr(a->at.own), str_cstr(found)))
        return err_set(e, ERR_IO, "an image of the fleet's store has other bytes than its name");
    if ((a->m->sync && fsync(a->fd) != 0) || rename(a->at.part, a->at.own) != 0)
        return media_fail_storage(e);
    /* Without a node's copy, the session's own file is enough. */
    if (is_image && link(a->at.own, a->at.copy) != 0 && errno != EEXIST)
        log_warn(NULL, "an image from the fleet's store is shared with no other session",
                 LOG_T("reason", strerror(errno)));
    return media_sync_names(a->m, &a->at, e);
}

void media_arrival_free(struct media_arrival *a)
{
    char unused[SHA256_HEX_LEN + 1];

    if (!a)
        return;
    if (a->hash)
        sha256_end(a->hash, unused);
    if (a->fd >= 0) {
        (void)close(a->fd);
        (void)unlink(a->at.part);
    }
    free(a);
}
