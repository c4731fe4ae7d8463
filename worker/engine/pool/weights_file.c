/*
 * The file: {"version": text or null, "adapters": [{"name": text, "version": text}, ...]}, replaced
 * as a whole. Two workers may get different changes at once, so a change is read, applied and
 * written under a lock (weights.lock). A waiting worker waits for one such change of the other: a
 * small file, and its fsync if the settings require it.
 */
#include "worker/engine/pool/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/json.h"
#include "common/os/file.h"
#include "common/os/file_lock.h"

enum { WEIGHTS_FILE_MAX = 1 << 20 };

void weights_told_done(struct weights_told *w)
{
    buf_done(&w->version);
    lora_done(&w->loras);
    *w = (struct weights_told){0};
}

/* --- reading --- */

static int read_adapters(struct lora_book *b, const struct json *list)
{
    if (!json_is(list, JSON_ARRAY))
        return -1;
    for (size_t i = 0; i < list->n; i++) {
        struct str name = json_string(json_get(json_at(list, i), "name"));
        struct str version = json_string(json_get(json_at(list, i), "version"));

        if (name.len == 0 || version.len == 0 || lora_set(b, name, version))
            return -1;
    }
    return 0;
}

static int read_weights_text(struct weights_told *w, struct str text)
{
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = -1;

    if (json_parse(&a, text, &v, NULL) == 0 && json_is(v, JSON_OBJECT)) {
        buf_add_str(&w->version, json_string(json_get(v, "version")));
        rc = read_adapters(&w->loras, json_get(v, "adapters"));
    }
    arena_done(&a);
    return rc;
}

int weights_load(const char *state_dir, struct weights_told *ret, struct err *e)
{
    char *path = path_join(state_dir, "weights.json");
    struct buf text = {0};
    struct err why = {0};
    int rc = file_read(path, WEIGHTS_FILE_MAX, &text, &why);

    *ret = (struct weights_told){0};
    if (rc == 0 && read_weights_text(ret, buf_str(&text)))
        rc = err_set(e, ERR_CONFIG,
                     "weights.json of the state folder is damaged: remove it, and set the "
                     "weight versions again");
    else if (rc && why.sys == ENOENT)
        rc = 0;
    else if (rc)
        rc = err_set(e, ERR_CONFIG, "weights.json of the state folder cannot be read");
    if (rc)
        weights_told_done(ret);
    buf_done(&text);
    free(path);
    return rc;
}

uint64_t weights_stamp(const char *state_dir)
{
    char *path = path_join(state_dir, "weights.json");
    uint64_t stamp = file_stamp(path);

    free(path);
    return stamp;
}

/* --- writing --- */

static int save_weights(const char *state_dir, const struct weights_told *w, bool durable,
                        struct err *e)
{
    char *part = path_join(state_dir, "weights.part"),
         *whole = path_join(state_dir, "weights.json");
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    int rc = 0;

    json_out_obj(&o);
    json_out_key(&o, "version");
    if (w->version.len > 0)
        json_out_str(&o, buf_str(&w->version));
    else
        json_out_null(&o);
    json_out_key(&o, "adapters");
    lora_write(&w->loras, &o);
    json_out_end_obj(&o);
    if (file_write(whole, part, buf_str(&text), durable) ||
        (durable && file_sync_folder(state_dir)))
        rc = err_sys(e, ERR_STORAGE_FAILED, "the versions of the weights cannot be written");
    buf_done(&text);
    free(part);
    free(whole);
    return rc;
}

/* What a change sets. */
struct weights_change {
    struct str adapter; /* absent: the version is that of the weights */
    struct str version;
    struct lora_book *loras; /* replaces all adapters, and nothing else changes; or NULL */
};

static int apply_change(struct weights_told *w, const struct weights_change *change, struct err *e)
{
    struct lora_book before = w->loras;

    if (change->loras) {
        w->loras = *change->loras;
        *change->loras = before;
        return 0;
    }
    if (!change->adapter.p) {
        buf_set(&w->version, change->version);
        return 0;
    }
    return lora_set(&w->loras, change->adapter, change->version)
               ? err_field(e, "name", "there are %d adapters already", LORAS_MAX)
               : 0;
}

/* Reads, changes and writes the file under its lock. */
static int change_file(const char *state_dir, const struct weights_change *change, bool durable,
                       struct err *e)
{
    char *path = path_join(state_dir, "weights.lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct weights_told w = {0};
    int rc;

    free(path);
    if (fd < 0) {
        rc = err_sys(e, ERR_STORAGE_FAILED, "the versions of the weights cannot be locked");
    } else if (file_lock(fd, true, "weights.lock", e)) {
        e->kind = ERR_STORAGE_FAILED;
        rc = -1;
    } else {
        rc = weights_load(state_dir, &w, e);
        if (rc)
            e->kind = ERR_STORAGE_FAILED; /* the error is not about the settings */
        else
            rc = apply_change(&w, change, e) ? -1 : save_weights(state_dir, &w, durable, e);
        weights_told_done(&w);
    }
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

int weights_tell(const char *state_dir, struct str adapter, struct str version, bool durable,
                 struct err *e)
{
    return change_file(state_dir, &(struct weights_change){adapter, version, NULL}, durable, e);
}

int weights_replace_loras(const char *state_dir, struct lora_book *loras, bool durable,
                          struct err *e)
{
    return change_file(state_dir, &(struct weights_change){.loras = loras}, durable, e);
}
