/* Notes of the images that sessions got from URLs (media_store.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/codec/sha256.h"
#include "common/os/file.h"
#include "worker/media/media_store_internal.h"

enum { PIN_NAME_MAX = SHA256_HEX_LEN + 5, PIN_READ_MAX = 64 << 10 };

/* Makes the note's file name, which media_fill_paths uses like an image's hash. */
static struct str pin_name(const struct media_pin *pin, char name[PIN_NAME_MAX])
{
    if (pin->hash.p)
        memcpy(name, pin->hash.p, SHA256_HEX_LEN);
    else
        sha256_hex(pin->url, name);
    memcpy(name + SHA256_HEX_LEN, PIN_END.p, PIN_END.len + 1);
    return str_of(name, SHA256_HEX_LEN + PIN_END.len);
}

/* Makes a note durable that this process may not have written. */
static int sync_pin(const struct media_store *m, const struct media_place *p, struct err *e)
{
    if (media_is_durable(m, p->own))
        return 0;
    if (media_sync_file(m, p->own) != 0 || file_sync_folder(p->folder) != 0)
        return media_fail_storage(e);
    media_mark_durable(m, p->own);
    return 0;
}

/* Appends the note. Returns like media_store_pinned. */
static int read_pin(const struct media_store *m, const struct media_pin *pin,
                    const struct media_place *p, struct buf *out, struct err *e)
{
    struct err why = {0};
    size_t start = out->len;
    bool is_read = file_read(p->own, PIN_READ_MAX, out, &why) == 0;

    if (is_read && pin->is_whole(str_sub(buf_str(out), start, out->len)))
        return sync_pin(m, p, e) == 0 ? 1 : -1;
    out->len = start;
    if (is_read && cancel_wanted())
        return cancel_fail(e); /* is_whole may have stopped early: the note may be complete */
    if (why.kind == ERR_IO && why.sys != ENOENT)
        return err_set(e, ERR_STORAGE_FAILED,
                       "what the session has had from an image's URL cannot be read back");
    return 0;
}

int media_store_pinned(const struct media_store *m, const struct media_pin *pin, struct buf *out,
                       struct err *e)
{
    char name[PIN_NAME_MAX];
    struct media_place p = {0};
    pthread_mutex_t *lock;
    int rc;

    media_fill_paths(m, pin->session_id, pin_name(pin, name), &p);
    lock = media_lock_name(m, &p);
    rc = read_pin(m, pin, &p, out, e);
    media_unlock_name(lock);
    return rc;
}

static int check_pins(const struct media_place *p, struct err *e)
{
    uint64_t n = 0;
    int rc = media_sum_folder(p->folder, true, &n, e);

    if (rc != 0 || n < MEDIA_PINS_MAX)
        return rc;
    return err_set(e, ERR_BODY_TOO_LARGE,
                   "the session has had images from %d URLs, and takes none from more",
                   MEDIA_PINS_MAX);
}

int media_store_pin_room(const struct media_store *m, struct str session_id, struct err *e)
{
    struct media_place p = {0};

    media_fill_paths(m, session_id, STR("00"), &p);
    return check_pins(&p, e);
}

/* Gives the written note its final name. Returns 1 if a readable note already exists. */
static int claim_pin(const struct media_store *m, const struct media_pin *pin,
                     const struct media_place *p, struct buf *out, struct err *e)
{
    int rc;

    if (access(p->own, F_OK) != 0 && check_pins(p, e) != 0)
        return -1;
    if (link(p->part, p->own) == 0)
        return 0;
    if (errno != EEXIST)
        return media_fail_storage(e);
    rc = read_pin(m, pin, p, out, e);
    if (rc != 0)
        return rc;
    return rename(p->part, p->own) == 0 ? 0
                                        : media_fail_storage(e); /* replaces an unreadable note */
}

/* Writes the note, and gives it its name if there is no other. Does not make the name durable. */
static int write_pin(const struct media_store *m, const struct media_pin *pin,
                     const struct media_place *p, struct str part, struct buf *out, struct err *e)
{
    int rc;

    if (file_write(p->part, p->part, part, m->sync) != 0)
        return media_fail_storage(e);
    CHECK(pthread_mutex_lock(m->pinning) == 0);
    rc = claim_pin(m, pin, p, out, e);
    CHECK(pthread_mutex_unlock(m->pinning) == 0);
    (void)unlink(p->part);
    return rc;
}

int media_store_bring_pin(const struct media_store *m, const struct media_pin *pin, struct str part,
                          struct buf *out, struct err *e)
{
    char name[PIN_NAME_MAX];
    struct media_place p = {0};
    int rc;

    media_fill_paths(m, pin->session_id, pin_name(pin, name), &p);
    rc = write_pin(m, pin, &p, part, out, e);
    if (rc == 0)
        media_report_stored(m, pin->session_id, str_cstr(name));
    return rc;
}

int media_store_pin(const struct media_store *m, const struct media_pin *pin, struct str part,
                    struct buf *out, struct err *e)
{
    char name[PIN_NAME_MAX];
    struct media_place p = {0};
    pthread_mutex_t *lock;
    int rc;

    media_fill_paths(m, pin->session_id, pin_name(pin, name), &p);
    lock = media_lock_name(m, &p);
    rc = write_pin(m, pin, &p, part, out, e);
    if (rc == 0 && m->sync && file_sync_folder(p.folder) != 0) {
        rc = media_fail_storage(e);
        (void)unlink(p.own);
    } else if (rc == 0) {
        media_mark_durable(m, p.own);
    }
    media_unlock_name(lock);
    if (rc == 0)
        media_report_stored(m, pin->session_id, str_cstr(name));
    return rc;
}

int media_store_pins(const struct media_store *m, struct str session_id, struct media_pins *ret,
                     struct err *e)
{
    struct media_place p = {0};

    media_fill_paths(m, session_id, STR("00"), &p);
    ret->dir = opendir(p.folder);
    return ret->dir || errno == ENOENT ? 0 : media_fail_reading(e);
}

/* Reads a whole file of the folder `d`. */
static int read_file_of(DIR *d, const char *name, struct buf *out)
{
    struct media_file f = {.fd = openat(dirfd(d), name, O_RDONLY | O_CLOEXEC)};
    struct stat st;
    int rc = -1;

    if (f.fd >= 0 && fstat(f.fd, &st) == 0 && st.st_size <= PIN_READ_MAX) {
        f.left = (uint64_t)st.st_size;
        rc = media_file_read(&f, PIN_READ_MAX, out);
    }
    media_file_close(&f);
    return rc;
}

int media_pins_next(struct media_pins *p, char url[MEDIA_HASH_MAX], struct buf *out, struct err *e)
{
    const struct dirent *entry;

    while (p->dir && (entry = file_next_entry(p->dir))) {
        if (!media_is_pin(str_cstr(entry->d_name)))
            continue;
        memcpy(url, entry->d_name, SHA256_HEX_LEN);
        url[SHA256_HEX_LEN] = 0;
        return read_file_of(p->dir, entry->d_name, out) == 0 ? 1 : media_fail_reading(e);
    }
    return p->dir && errno ? media_fail_reading(e) : 0;
}

void media_pins_close(struct media_pins *p)
{
    if (p->dir)
        (void)closedir(p->dir);
    p->dir = NULL;
}
