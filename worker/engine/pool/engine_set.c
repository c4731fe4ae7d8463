/*
 * The file: {"edition": n, "settings": [--engine ...], "engines": [{"engine": text, "place": n},
 * ...], "pools": [name ...]}. Reading first compares `settings` with those of this run. If they
 * differ, the settings win except for `pools`, and the next writer replaces the file.
 *
 * A writer takes the lock (engines.lock), reads, changes, writes everything to engines.part,
 * renames that, and unlocks. Readers take no lock. They notice a change by the file's stamp.
 */
#include "worker/engine/pool/engine_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "common/os/file_lock.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_target.h"

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
    /* without an earlier set no engine can change its pool */
    (void)engine_set_follow(s, NULL, NULL);
}

void engine_set_done(struct engine_set *s)
{
    vec_done(s);
    vec_done(&s->pools);
    arena_done(&s->arena);
    *s = (struct engine_set){0};
}

/* --- pools --- */

bool engine_set_knows_pool(const struct engine_set *s, const char *name)
{
    for (size_t i = 0; i < s->pools.n; i++) {
        if (strcmp(s->pools.at[i], name) == 0)
            return true;
    }
    return false;
}

static void know_pool(struct engine_set *s, struct str name)
{
    const char *copy = arena_cstr(&s->arena, name);

    if (!engine_set_knows_pool(s, copy))
        *vec_push(&s->pools) = copy;
}

static bool is_policy_name(const char *name)
{
    return strcmp(name, ENGINE_POOL_POLICY) == 0;
}

static bool is_policy(const struct engine_target *t)
{
    return !t->label || is_policy_name(t->label);
}

/* Returns the pool of an engine of the set; NULL: the policy's. */
static const char *engine_set_pool(const struct engine_set *s, const struct engine_target *t)
{
    return !is_policy(t) && engine_set_knows_pool(s, t->label) ? t->label : NULL;
}

const char *engine_set_pool_of(const struct engine_set *s, struct arena *a, const char *text)
{
    struct engine_target t;

    return engine_target_parse(a, text, &t, NULL) ? NULL : engine_set_pool(s, &t);
}

/* Reports whether names are those of pools. */
static bool has_pools(const struct engine_set *s, struct arena *a)
{
    struct engine_target t;

    for (size_t i = 0; i < s->n; i++) {
        if (engine_target_parse(a, s->at[i].text, &t, NULL) == 0 && is_policy(&t))
            return true;
    }
    return s->pools.n > 0;
}

/* Refuses an engine that would change its pool: its earlier samples came from a different model. */
static int check_staying(const struct engine_set *s, const struct engine_set *now, struct arena *a,
                         struct err *e)
{
    struct engine_target t;

    for (size_t i = 0; now && i < s->n; i++) {
        bool stays = false;

        for (size_t k = 0; k < now->n; k++)
            stays = stays || strcmp(now->at[k].text, s->at[i].text) == 0;
        if (stays && engine_target_parse(a, s->at[i].text, &t, NULL) == 0 &&
            !engine_set_pool(s, &t) != !engine_set_pool(now, &t))
            return err_set(e, ERR_CONFIG,
                           "engine \"%.100s\" is the policy's, and would become the pool \"%s\" "
                           "because other engines have no name: name them, too, or remove it "
                           "and add it again with the option name=%s",
                           t.name, t.label, t.label);
    }
    return 0;
}

int engine_set_follow(struct engine_set *s, const struct engine_set *now, struct err *e)
{
    struct arena a = {0};
    struct engine_target t;
    int rc;

    for (size_t i = 0; now && i < now->pools.n; i++)
        know_pool(s, str_cstr(now->pools.at[i]));
    for (size_t i = 0; has_pools(s, &a) && i < s->n; i++) {
        if (engine_target_parse(&a, s->at[i].text, &t, NULL) == 0 && !is_policy(&t))
            know_pool(s, str_cstr(t.label));
    }
    rc = check_staying(s, now, &a, e);
    arena_done(&a);
    return rc;
}

void engine_set_part(const struct engine_set *s, const char *pool, struct engine_set *ret)
{
    struct arena a = {0};
    struct engine_target t;

    *ret = (struct engine_set){.edition = s->edition};
    for (size_t i = 0; i < s->n; i++) {
        const char *of =
            engine_target_parse(&a, s->at[i].text, &t, NULL) ? NULL : engine_set_pool(s, &t);

        if (pool && of ? strcmp(pool, of) == 0 : !pool && !of)
            engine_set_add(ret, str_cstr(s->at[i].text), s->at[i].number);
    }
    arena_done(&a);
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

/* Reads the names of former and present pools, which do not depend on the settings. */
static int read_pools(struct engine_set *s, const struct json *list)
{
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++) {
        if (!json_string(json_at(list, i)).len)
            return -1;
        know_pool(s, json_string(json_at(list, i)));
    }
    s->kept_pools = s->pools.n;
    return 0;
}

static int read_entries(struct engine_set *s, const struct json *v, int64_t edition)
{
    const struct json *list = json_get(v, "engines");

    if (!json_is(list, JSON_ARRAY))
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
    return engine_set_follow(s, NULL, NULL);
}

/* Returns 1 if there is no file. */
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
    int64_t edition = -1;
    int rc = 0;

    if (json_parse(&a, text, &v, NULL) || !json_is(v, JSON_OBJECT) ||
        json_to_i64(json_get(v, "edition"), &edition) || edition < 0 ||
        read_pools(s, json_get(v, "pools"))) {
        rc = -1;
    } else if (!same_settings(json_get(v, "settings"), h)) {
        if (told)
            *told = edition > 0;
        engine_set_of(s, h->settings, h->n);
    } else {
        rc = read_entries(s, v, edition);
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
    char *path = path_join(h->state_dir, "engines.json");
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
    char *path = path_join(state_dir, "engines.json");
    uint64_t stamp = file_stamp(path);

    free(path);
    return stamp;
}

/* --- writing --- */

static void write_text(const struct engine_set *s, const struct engine_home *h, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_i64(&o, "edition", (int64_t)s->edition);
    json_out_member_arr(&o, "settings");
    for (size_t i = 0; i < h->n; i++)
        json_out_cstr(&o, h->settings[i]);
    json_out_end_arr(&o);
    json_out_member_arr(&o, "engines");
    for (size_t i = 0; i < s->n; i++) {
        json_out_obj(&o);
        json_out_member_cstr(&o, "engine", s->at[i].text);
        json_out_member_i64(&o, "place", s->at[i].number);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_member_arr(&o, "pools");
    for (size_t i = 0; i < s->pools.n; i++)
        json_out_cstr(&o, s->pools.at[i]);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
}

int engine_set_save(const struct engine_set *s, const struct engine_home *h, struct err *e)
{
    char *part = path_join(h->state_dir, "engines.part");
    char *whole = path_join(h->state_dir, "engines.json");
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

int engine_set_keep_pools(const struct engine_set *s, const struct engine_home *h, struct err *e)
{
    int fd, rc;

    if (s->pools.n == s->kept_pools)
        return 0;
    fd = engine_set_lock(h->state_dir, e);
    if (fd < 0)
        return -1;
    rc = engine_set_save(s, h, e);
    (void)close(fd);
    return rc;
}

int engine_set_lock(const char *state_dir, struct err *e)
{
    char *path = path_join(state_dir, "engines.lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int rc;

    free(path);
    if (fd < 0)
        return err_sys(e, ERR_STORAGE_FAILED, "the set of engines cannot be locked");
    rc = file_lock(fd, false, "engines.lock", e);
    if (rc == 0)
        return fd;
    (void)close(fd);
    if (rc == 1)
        return err_set(e, ERR_STATE_CONFLICT, "another change of the engines is under way");
    e->kind = ERR_STORAGE_FAILED;
    return -1;
}

/* --- names --- */

static const char *name_of(const struct engine_set *s, const struct engine_target *t)
{
    struct arena a = {0};
    struct engine_target other;
    size_t n = 0;

    if (t->own || !engine_set_pool(s, t))
        return t->name;
    for (size_t i = 0; i < s->n; i++)
        n += engine_target_parse(&a, s->at[i].text, &other, NULL) == 0 && other.label &&
             strcmp(other.label, t->label) == 0;
    arena_done(&a);
    return n > 1 ? t->whole : t->name;
}

const char *engine_set_name(const struct engine_set *s, struct arena *a, const char *text)
{
    struct engine_target t;

    return engine_target_parse(a, text, &t, NULL) ? NULL : name_of(s, &t);
}

/* Checks the options of a pool's engine, which is asked with messages for a model of its own. */
static int check_options(const struct engine_set *s, const struct engine_target *t, struct err *e)
{
    const char *pool = engine_set_pool(s, t);
    const char *idle = t->ids_of     ? "token-ids"
                       : t->logprobs ? "logprobs"
                       : t->priority ? "priority"
                       : t->dp_ranks ? "dp-ranks"
                                     : NULL;
    const struct engine_adapter *kind = engine_adapter_find(t->kind);

    if (pool && idle)
        return err_set(e, ERR_CONFIG,
                       "engine option %s of \"%.100s\" has no effect in the pool \"%s\", which "
                       "gets messages and returns no token ids",
                       idle, t->name, pool);
    if (t->model && (pool ? !kind->wire : !kind->passes_request))
        return err_set(e, ERR_CONFIG,
                       "engine option model is for upstreams that get messages (of a pool, or of "
                       "kind openai); \"%.100s\" gets token ids",
                       t->name);
    return 0;
}

/* Refuses an engine's own name that is also a pool's, because it would be ambiguous. */
static int check_own(const struct engine_set *s, const struct engine_target *t, struct err *e)
{
    const char *pool = engine_set_pool(s, t);

    if (!t->own || (pool && strcmp(t->name, pool) == 0) || (!pool && is_policy_name(t->name)) ||
        (!is_policy_name(t->name) && !engine_set_knows_pool(s, t->name)))
        return 0;
    return err_set(e, ERR_CONFIG,
                   "engine option name=%.100s is the name of a pool that this engine is not in",
                   t->name);
}

int engine_set_check(const struct engine_set *s, struct err *e)
{
    struct arena a = {0};
    struct engine_target one, other;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        rc = engine_target_parse(&a, s->at[i].text, &one, e);
        if (rc == 0)
            rc = check_options(s, &one, e);
        if (rc == 0)
            rc = check_own(s, &one, e);
        for (size_t j = 0; rc == 0 && j < i; j++) {
            rc = engine_target_parse(&a, s->at[j].text, &other, e);
            if (rc == 0 && strcmp(name_of(s, &one), name_of(s, &other)) == 0)
                rc = err_set(e, ERR_CONFIG,
                             "two engines are called \"%.100s\": give them names, NAME=KIND:URL",
                             name_of(s, &one));
        }
    }
    arena_done(&a);
    return rc;
}
