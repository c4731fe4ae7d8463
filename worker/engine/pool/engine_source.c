/*
 * Each argument is checked against the grammar of --engine here, so that a wrong line changes
 * nothing. A router that splits servers by data-parallel rank lists one server several times, as
 * URL@RANK: that is one engine.
 */
#include "worker/engine/pool/engine_source.h"

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/engine_target.h"

int engine_source_parse(struct arena *a, const char *text, struct engine_source *ret, struct err *e)
{
    struct str all = str_cstr(text);
    size_t comma = str_find(all, STR(","), 0);
    struct engine_target t;
    struct buf as_engine = {0};

    *ret = (struct engine_source){.options = ""};
    if (str_starts(all, STR("file:")) && all.len > 5) {
        ret->where = arena_cstr(a, str_sub(all, 5, all.len));
        return 0;
    }
    if (!str_starts(all, STR("smg:")))
        return err_set(e, ERR_CONFIG, "\"%.200s\" is not file:PATH or smg:URL", text);
    ret->router = true;
    if (comma != SIZE_MAX)
        ret->options = arena_cstr(a, str_sub(all, comma, all.len));
    ret->where = arena_cstr(a, str_sub(all, 4, comma == SIZE_MAX ? all.len : comma - 4));
    buf_printf(&as_engine, "sglang:%s%s", ret->where, ret->options);
    ret->as_engine = arena_cstr(a, buf_str(&as_engine));
    buf_done(&as_engine);
    return engine_target_parse(a, ret->as_engine, &t, e);
}

int engine_source_check(const char *text, const struct engine_options *o, struct err *e)
{
    struct engine_source s;
    struct arena a = {0};
    int rc = engine_source_parse(&a, text, &s, e);

    if (rc == 0 && s.router)
        rc = engine_check(s.as_engine, o, e);
    arena_done(&a);
    return rc;
}

/* Adds an engine unless it is present. */
static int add_engine_text(struct arena *a, struct engine_texts *t, struct str text, struct err *e)
{
    const char *copy = arena_cstr(a, text);
    struct engine_target target;

    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->at[i], copy) == 0)
            return 0;
    }
    if (engine_target_parse(a, copy, &target, e))
        return -1;
    *vec_push(t) = copy;
    return 0;
}

int engine_source_lines(struct arena *a, struct str text, struct engine_texts *ret, struct err *e)
{
    struct err why = {0};

    *ret = (struct engine_texts){0};
    for (unsigned number = 1; text.len > 0; number++) {
        struct str line = str_trim(str_cut(&text, '\n'));

        if (str_eq_c(line, ENGINE_SET_NONE))
            ret->none = true;
        else if (line.len > 0 && line.p[0] != '#' && add_engine_text(a, ret, line, &why))
            return err_set(e, ERR_CONFIG, "line %u: %s", number, why.text);
    }
    return ret->none && ret->n > 0 ? err_set(e, ERR_CONFIG, "\"none\" excludes other engines") : 0;
}

/* Reports whether the worker is a server that answers /generate itself, over HTTP. */
static bool is_whole(const struct json *worker, struct str url)
{
    struct str type = json_string(json_get(worker, "worker_type"));

    return (!type.p || str_eq_c(type, "regular")) &&
           (str_starts(url, STR("http://")) || str_starts(url, STR("https://")));
}

/* Returns the server's URL without the rank. */
static struct str server_of(struct str url)
{
    size_t at = url.len;

    while (at > 0 && url.p[at - 1] >= '0' && url.p[at - 1] <= '9')
        at--;
    return at > 0 && at < url.len && url.p[at - 1] == '@' ? str_sub(url, 0, at - 1) : url;
}

static int add_worker(struct arena *a, const struct engine_source *s, const struct json *worker,
                      struct engine_texts *ret, struct err *e)
{
    struct str url =
        json_is(worker, JSON_STRING) ? json_string(worker) : json_string(json_get(worker, "url"));
    struct buf text = {0};
    int rc;

    if (!url.p)
        return err_set(e, ERR_CONFIG, "the list of workers has one without url");
    if (str_find(url, STR(","), 0) !=
        SIZE_MAX) /* options (such as a key file) come from the setting */
        return err_set(e, ERR_CONFIG, "the list of workers has a url with a comma");
    if (!is_whole(worker, url)) {
        ret->left_out++;
        return 0;
    }
    url = server_of(url);
    buf_printf(&text, "sglang:%.*s%s", (int)url.len, url.p, s->options);
    rc = add_engine_text(a, ret, buf_str(&text), e);
    buf_done(&text);
    return rc;
}

int engine_source_workers(struct arena *a, const struct engine_source *s, struct str text,
                          struct engine_texts *ret, struct err *e)
{
    const struct json *v = NULL, *list;

    *ret = (struct engine_texts){0};
    if (json_parse(a, text, &v, NULL))
        return err_set(e, ERR_CONFIG, "the list of workers is not JSON");
    list = json_get(v, "workers");
    if (!json_is(list, JSON_ARRAY))
        list = json_get(v, "urls");
    if (!json_is(list, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "the answer has no list of workers");
    for (size_t i = 0; i < list->n; i++) {
        if (add_worker(a, s, json_at(list, i), ret, e))
            return -1;
    }
    return 0;
}
