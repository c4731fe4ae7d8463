/*
 * The file: {"edition": n, "settings": [--engine ...], "engines": [{"engine": text, "place": n},
 * ...]}. Reading compares `settings` with those of this run first; a difference makes the settings
 * win, and the file is left for its next writer.
 *
 * Writers take the lock (engines.lock), read, change, write the whole by way of engines.part, and
 * let go. Readers take no lock. They notice a change by the file's stamp.
 */
#include "worker/engine/engine_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "common/os/file.h"
#include "worker/engine/adapter.h"
#include "worker/engine/engine_target.h"

enum { FILE_MAX = 4 << 20 };

void engine_set_add(struct engine_set *s, struct str text, unsigned number)
{
    *vec_push(s) = (struct engine_entry){arena_cstr(&s->arena, text), number};
}

void engine_set_of(struct engine_set *s, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(texts[i], ENGINE_SET_NONE) != 0)
            engine_set_add(s, str_cstr(texts[i]), (unsigned)i);
    }
}

void engine_set_done(struct engine_set *s)
{
    vec_done(s);
    arena_done(&s->arena);
    *s = (struct engine_set){0};
}

static char *path_of(const char *state_dir, const char *name)
{
    struct buf path = {0};

    buf_printf(&path, "%s/%s", state_dir, name);
    return buf_take(&path);
}

/* --- reading --- */

static bool same_settings(const struct json *v, const struct engine_home *h)
{
    size_t n = json_is(v, JSON_ARRAY) ? v->n : SIZE_MAX;

    for (size_t i = 0; n == h->n && i < n; i++) {
        if (!str_eq_c(json_string(json_at(v, i)), h->settings[i]))
            return false;
    }
    return n == h->n;
}

static int read_entries(struct engine_set *s, const struct json *v)
{
    const struct json *list = json_get(v, "engines");
    int64_t edition = 0;

    if (!json_is(list, JSON_ARRAY) || json_to_i64(json_get(v, "edition"), &edition) || edition < 1)
        return -1;
    s->edition = (uint64_t)edition;
    for (size_t i = 0; i < list->n; i++) {
        struct str text = json_string(json_get(json_at(list, i), "engine"));
        int64_t number = -1;

        if (!text.p || json_to_i64(json_get(json_at(list, i), "place"), &number) || number < 0 ||
            number > UINT16_MAX)
            return -1;
        engine_set_add(s, text, (unsigned)number);
    }
    return 0;
}

/* 1: there is no file. */
static int read_text(const char *path, struct buf *text, struct err *e)
{
    if (file_read(path, FILE_MAX, text, e) == 0)
        return 0;
    return e->sys == ENOENT ? 1 : err_set(e, ERR_CONFIG, "engines.json cannot be read");
}

static int take_text(struct engine_set *s, const struct engine_home *h, struct str text, bool *told,
                     struct err *e)
{
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = 0;

    if (json_parse(&a, text, &v, NULL) || !json_is(v, JSON_OBJECT)) {
        rc = -1;
    } else if (!same_settings(json_get(v, "settings"), h)) {
        if (told)
            *told = true;
        engine_set_of(s, h->settings, h->n);
    } else {
        rc = read_entries(s, v);
    }
    if (rc)
        (void)err_set(e, ERR_CONFIG,
                      "engines.json of the state folder is damaged: remove it to begin with "
                      "--engine");
    arena_done(&a);
    return rc;
}

int engine_set_load(struct engine_set *s, const struct engine_home *h, bool *told, struct err *e)
{
    char *path = path_of(h->state_dir, "engines.json");
    struct buf text = {0};
    int rc = read_text(path, &text, e);

    *s = (struct engine_set){0};
    if (rc == 0)
        rc = take_text(s, h, buf_str(&text), told, e);
    else if (rc > 0)
        engine_set_of(s, h->settings, h->n);
    if (rc < 0)
        engine_set_done(s);
    buf_done(&text);
    free(path);
    return rc < 0 ? -1 : 0;
}

uint64_t engine_set_stamp(const char *state_dir)
{
    char *path = path_of(state_dir, "engines.json");
    uint64_t stamp = file_stamp(path);

    free(path);
    return stamp;
}

/* --- writing --- */

static void write_text(const struct engine_set *s, const struct engine_home *h, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_key(&o, "edition");
    json_out_i64(&o, (int64_t)s->edition);
    json_out_key(&o, "settings");
    json_out_arr(&o);
    for (size_t i = 0; i < h->n; i++)
        json_out_cstr(&o, h->settings[i]);
    json_out_end_arr(&o);
    json_out_key(&o, "engines");
    json_out_arr(&o);
    for (size_t i = 0; i < s->n; i++) {
        json_out_obj(&o);
        json_out_key(&o, "engine");
        json_out_cstr(&o, s->at[i].text);
        json_out_key(&o, "place");
        json_out_i64(&o, s->at[i].number);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
}

int engine_set_save(const struct engine_set *s, const struct engine_home *h, struct err *e)
{
    char *part = path_of(h->state_dir, "engines.part");
    char *whole = path_of(h->state_dir, "engines.json");
    struct buf text = {0};
    int rc = 0;

    write_text(s, h, &text);
    if (file_write(whole, part, buf_str(&text), true) || file_sync_folder(h->state_dir))
        rc = err_sys(e, ERR_STORAGE_FAILED, "the set of engines cannot be written");
    buf_done(&text);
    free(part);
    free(whole);
    return rc;
}

int engine_set_lock(const char *state_dir, struct err *e)
{
    char *path = path_of(state_dir, "engines.lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int sys;

    free(path);
    if (fd < 0)
        return err_sys(e, ERR_STORAGE_FAILED, "the set of engines cannot be locked");
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    sys = errno;
    (void)close(fd);
    if (sys == EWOULDBLOCK)
        return err_set(e, ERR_STATE_CONFLICT, "another change of the engines is under way");
    errno = sys;
    return err_sys(e, ERR_STORAGE_FAILED, "the set of engines cannot be locked");
}

/* --- names --- */

const char *engine_set_name(struct arena *a, const char *text)
{
    struct engine_target t;

    return engine_target_parse(a, text, &t, NULL) ? NULL : t.name;
}

int engine_set_check(const struct engine_set *s, struct err *e)
{
    struct arena a = {0};
    struct engine_target one, other;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        rc = engine_target_parse(&a, s->at[i].text, &one, e);
        for (size_t j = 0; rc == 0 && j < i; j++) {
            rc = engine_target_parse(&a, s->at[j].text, &other, e);
            if (rc == 0 && strcmp(one.name, other.name) == 0)
                rc = err_set(e, ERR_CONFIG,
                             "two engines are called \"%.100s\": give them names, NAME=KIND:URL",
                             one.name);
        }
    }
    arena_done(&a);
    return rc;
}
