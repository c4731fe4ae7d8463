/* One GET after the other, until one shows a kind: first paths of the kind in the settings, then
 * the list of models, then paths of other kinds. A route for model calls answers a GET with 405 if
 * it exists. Any other answer shows nothing, so a proxy of an engine is accepted. */
#include "worker/engine/wire/kind_probe.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/net/http_client.h"
#include "common/net/http_fetch.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/wire/attempt.h"

struct kind_probe {
    struct list_head calls;
    size_t next; /* index of the next step */
    bool own;    /* asking paths of the own kind; later those of other kinds */
    void (*done)(struct remote *r, const char *other_kind);
};

enum step_mark { MARK_PAGE, MARK_ROUTE, MARK_MODELS };

static const struct kind_step {
    const char *kind; /* NULL: the answer contains the kind */
    const char *path;
    enum step_mark mark;
} steps[] = {
    {NULL, "/v1/models", MARK_MODELS},
    {"vllm", "/version", MARK_PAGE},
    {"sglang", "/server_info", MARK_PAGE},
    {"sglang", "/get_server_info", MARK_PAGE},
    {"sglang", "/model_info", MARK_PAGE},
    {"sglang", "/get_model_info", MARK_PAGE},
    {"llamacpp", "/props", MARK_PAGE},
    {"sglang", "/generate", MARK_ROUTE},
    {"vllm", "/inference/v1/generate", MARK_ROUTE},
    {"llamacpp", "/completion", MARK_ROUTE},
};

static const char *const kinds[] = {"sglang", "vllm", "llamacpp"};

const char *kind_of_models(const struct json *models, const char *kind)
{
    struct str owner = json_string(json_get(json_at(json_get(models, "data"), 0), "owned_by"));

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eq_c(owner, kinds[i]))
            return strcmp(kinds[i], kind) == 0 ? NULL : kinds[i];
    return NULL;
}

static void end_probe(struct remote *r, const char *other_kind)
{
    void (*done)(struct remote * r, const char *other_kind) = r->kind_probe->done;

    kind_probe_cancel(r);
    done(r, other_kind);
}

/* Reports whether the step must be done now. Settings were asked for before. */
static bool is_due(const struct remote *r, const struct kind_step *s)
{
    bool own = s->kind && strcmp(s->kind, r->adapter->kind) == 0;

    if (strcmp(s->path, r->wire->info) == 0)
        return false;
    return r->kind_probe->own ? own && s->mark == MARK_PAGE : !own;
}

static void ask_next(struct remote *r);

static void on_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct remote *r = ctx;
    struct kind_probe *p = r->kind_probe;
    const struct kind_step *s = &steps[p->next++];
    struct arena a = {0};
    const struct json *v = NULL;
    struct err bad;
    const char *other = NULL;
    bool shows = status == 200 || (s->mark == MARK_ROUTE && status == 405);

    (void)e;
    if (s->mark == MARK_MODELS && status == 200 && json_parse(&a, body, &v, &bad) == 0)
        other = kind_of_models(v, r->adapter->kind);
    else if (s->mark != MARK_MODELS && shows)
        other = s->kind;
    arena_done(&a);
    if (other)
        end_probe(r, p->own ? NULL : other);
    else
        ask_next(r);
}

static void ask_next(struct remote *r)
{
    struct kind_probe *p = r->kind_probe;
    struct http_request q = {.method = "GET", .total_timeout_ms = r->options->health_timeout_ms};
    struct buf headers = {0};

    while (p->next < ARRAY_LEN(steps) && !is_due(r, &steps[p->next]))
        if (++p->next == ARRAY_LEN(steps) && p->own) {
            p->own = false;
            p->next = 0;
        }
    if (p->next == ARRAY_LEN(steps)) {
        end_probe(r, NULL);
        return;
    }
    remote_headers(r, &headers, (struct str){0}, (struct str){0}, (struct str){0});
    q.path = str_cstr(steps[p->next].path);
    q.headers = buf_str(&headers);
    (void)http_fetch(r->client, &q, &p->calls, on_answer, r);
    buf_done(&headers);
}

void kind_probe_begin(struct remote *r, void (*done)(struct remote *r, const char *other_kind))
{
    if (r->kind_probe)
        return;
    r->kind_probe = mem_zalloc(sizeof(*r->kind_probe));
    r->kind_probe->own = true;
    r->kind_probe->done = done;
    ask_next(r);
}

void kind_probe_cancel(struct remote *r)
{
    if (r->kind_probe)
        http_fetches_end(&r->kind_probe->calls, NULL);
    free(r->kind_probe);
    r->kind_probe = NULL;
}
