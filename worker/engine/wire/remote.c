/*
 * The replica: its client, key and routes, and all calls other than attempts (struct aside):
 * aborts, probes, requests for facts and for the weights' version, and forwarded requests. An aside
 * lives from its start to its callback; closing the replica cancels pending ones.
 *
 * Facts are requested after the first good probe, and again when a replica that was away answers
 * again: it may be a different server. Their consequences are in remote_facts.c.
 */
#include "worker/engine/wire/remote.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/passing.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/form_probe.h"
#include "worker/engine/wire/kind_probe.h"
#include "worker/engine/wire/kv_told.h"
#include "worker/engine/wire/session_ends.h"

enum {
    KEY_MAX = 4096,
    ABORT_TIMEOUT_MS = 10000,
    WEIGHTS_TIMEOUT_MS = 5000,
    WEIGHTS_MAX = 64 << 10, /* longest answer to a request for the weights' version */
    PASS_COPIED = 64 << 10  /* a longer body is sent from where it is instead of being copied */
};

/* A small call other than an attempt: an abort, a probe, a request for facts, a forwarded
 * request. */
struct aside {
    struct remote *remote;
    struct list_item item; /* in remote->asides */
    struct http_call *http;
    int status;
    void (*answer)(void *ctx, enum engine_health h); /* set for a probe */
    bool info;                                       /* set for a request for facts */
    bool version;                                    /* set for a request about the front */
    /* set for a notice that a session has ended */
    bool ends;
    bool aborts; /* set for an abort of a request */
    /* set for a request for the weights' version */
    void (*weights)(void *ctx, struct str version);
    void (*kv)(void *ctx, const struct engine_kv *kv); /* set for a request for the KV cache */
    struct kv_told *kv_text;                           /* answer about the KV cache, owned */
    struct buf text;                                   /* answer to any other request */
    const struct engine_pass_events *pass;             /* set for a forwarded request */
    void *ctx;
};

/* --- the replica --- */

/* Reads the bearer key: the file's text without surrounding blanks. */
static int read_key(const char *path, struct buf *line, struct err *e)
{
    char text[KEY_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    struct str key;

    if (fd >= 0)
        (void)close(fd);
    if (n < 0)
        return err_sys(e, ERR_CONFIG, "engine key file %s", path);
    key = str_trim(str_of(text, (size_t)n));
    for (size_t i = 0; i < key.len; i++) {
        if ((unsigned char)key.p[i] <= ' ' || (unsigned char)key.p[i] >= 0x7f)
            return err_set(e, ERR_CONFIG, "engine key file %s: not one line of text", path);
    }
    if (key.len == 0)
        return err_set(e, ERR_CONFIG, "engine key file %s: empty", path);
    buf_clear(line);
    buf_printf(line, "authorization: Bearer %.*s\r\n", (int)key.len, key.p);
    return 0;
}

void remote_reload(void *replica)
{
    struct remote *r = replica;
    struct err e;

    http_client_limits(r->client, r->options->connect_timeout_ms, r->options->max_inflight);
    if (r->target->key_file && read_key(r->target->key_file, &r->auth, &e) < 0)
        log_error(NULL, "an engine's key is unchanged", LOG_T("engine", r->target->name),
                  LOG_T("reason", e.text));
}

int remote_open(const struct engine_adapter *kind, struct loop *loop, const struct engine_target *t,
                const struct engine_options *o, void **ret, struct err *e)
{
    struct http_client_options h = {.ca_file = o->ca_file,
                                    .insecure_tls = o->insecure_tls,
                                    .connect_timeout_ms = o->connect_timeout_ms,
                                    .max_idle = o->max_inflight};
    struct remote *r = mem_zalloc(sizeof(*r));

    *r = (struct remote){.adapter = kind,
                         .wire = kind->wire,
                         .loop = loop,
                         .target = t,
                         .options = o,
                         .refused_budget = -1};
    if (t->key_file && read_key(t->key_file, &r->auth, e) < 0)
        goto out;
    if (http_client_new(loop, t->rest, &h, &r->client, e) < 0)
        goto out;
    r->ends = mem_zalloc(sizeof(*r->ends));
    *ret = r;
    return 0;
out:
    buf_done(&r->auth);
    free(r);
    return -1;
}

void remote_close(void *replica)
{
    struct aside *a, *next;
    struct remote *r = replica;

    form_probe_cancel(r);
    kind_probe_cancel(r);
    LIST_EACH_SAFE(&r->asides, a, next, struct aside, item)
        aside_cancel(a);
    session_ends_done(r->ends, r->options->metrics);
    free(r->ends);
    http_client_free(r->client);
    buf_done(&r->auth);
    free(r);
}

const struct engine_options *remote_options(const struct remote *r)
{
    return r->options;
}

const struct engine_facts *remote_facts(const struct remote *r)
{
    return &r->facts;
}

unsigned remote_route(const struct remote *r)
{
    return r->route;
}

const struct engine_target *remote_target(const struct remote *r)
{
    return r->target;
}

void remote_rid(struct buf *b, const struct engine_request *q)
{
    buf_printf(b, "%.*s:%llu.%u.%u.", (int)q->session_id.len, q->session_id.p,
               (unsigned long long)q->call, q->answer, q->attempt);
}

bool remote_is_rid(struct str id)
{
    size_t at = id.len, parts = 0;

    while (parts < 3 && at > 1 && id.p[at - 1] == '.') {
        size_t end = --at;

        while (at > 0 && id.p[at - 1] >= '0' && id.p[at - 1] <= '9')
            at--;
        if (at == end)
            return false;
        parts++;
    }
    return parts == 3 && at > 1 && id.p[at - 1] == ':';
}

void remote_add_header(struct buf *b, const char *name, struct str value)
{
    buf_puts(b, name);
    for (size_t i = 0; i < value.len; i++) {
        if ((unsigned char)value.p[i] >= ' ' && value.p[i] != 0x7f)
            buf_add_c(b, value.p[i]);
    }
    buf_puts(b, "\r\n");
}

void remote_headers(const struct remote *r, struct buf *b, struct str session_id,
                    struct str content_type, struct str accept)
{
    if (content_type.p)
        remote_add_header(b, "content-type: ", content_type);
    if (accept.p)
        remote_add_header(b, "accept: ", accept);
    if (session_id.p)
        remote_add_header(b, "x-smg-routing-key: ", session_id);
    buf_add_str(b, buf_str(&r->auth));
}

/* --- small calls --- */

static void answer_done(struct aside *a)
{
    buf_done(&a->text);
    if (a->kv_text)
        kv_told_done(a->kv_text);
    free(a->kv_text);
}

void aside_cancel(struct aside *a)
{
    http_call_cancel(a->http);
    list_remove(&a->item);
    answer_done(a);
    free(a);
}

static void aside_head(void *ctx, const struct http1_head *h)
{
    struct aside *a = ctx;

    a->status = h->status;
    if (a->pass)
        a->pass->head(a->ctx, h->status, http1_get(h, STR("content-type")));
}

static void aside_body(void *ctx, struct str bytes)
{
    struct aside *a = ctx;

    size_t most = a->info ? ENGINE_INFO_MAX : a->weights || a->version ? WEIGHTS_MAX : 0;

    if (a->text.len < most)
        buf_add_str(&a->text, str_sub(bytes, 0, most - a->text.len));
    if (a->kv)
        kv_told_feed(a->kv_text, bytes);
    if (a->pass)
        a->pass->body(a->ctx, bytes);
}

/* Returns the version in an answer, in the arena; absent: it has none. */
static struct str weights_of(struct arena *a, int status, struct str text)
{
    const struct json *v = NULL;
    struct err e = {0};

    if (status != 200 || json_parse(a, text, &v, &e))
        return (struct str){0};
    return json_string(json_get(v, "weight_version"));
}

static void take_weights(const struct aside *a, int status)
{
    struct arena arena = {0};

    a->weights(a->ctx, weights_of(&arena, status, buf_str(&a->text)));
    arena_done(&arena);
}

/* Reads whether a Rust front serves, for a kind that has a path for it. */
static void take_version(struct remote *r, int status, struct str text)
{
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err e = {0};

    if (status == 200 && json_parse(&arena, text, &v, &e) == 0 &&
        json_get(v, r->wire->rust_member)) {
        r->facts.rust_front = r->facts.says_rust = true;
        remote_note_front(r);
        form_probe_begin(r);
    }
    arena_done(&arena);
}

/* Reports the KV cache. The settings are used for figures that the metrics lack. */
static void take_kv(const struct remote *r, int status, struct kv_told *text,
                    void (*told)(void *ctx, const struct engine_kv *kv), void *ctx)
{
    struct engine_kv kv = {0};

    if (text && status == 200)
        kv_told_end(text, &kv);
    if (kv.capacity == 0)
        kv.capacity = r->facts.kv_capacity;
    kv.unit = r->facts.kv_unit;
    told(ctx, &kv);
}

static void ask_info(struct remote *r);
static void ask_kv(struct remote *r, void (*told)(void *ctx, const struct engine_kv *kv),
                   void *ctx);
static void kv_waited(struct remote *r);
static void tell_ends(struct remote *r);
static void look_for_weights(struct remote *r);

/* Continues work that has waited for the engine's report about itself. */
static void go_on_informed(struct remote *r)
{
    remote_note_facts(r);
    remote_note_front(r);
    if (r->facts.rust_front)
        form_probe_begin(r);
    tell_ends(r);
    if (r->wire->weights && !r->tells_weights)
        look_for_weights(r);
    kv_waited(r);
}

/* Answers the waiting probe. An engine of a different kind is down, because no call could succeed.
 * The next probe checks again. */
static void answer_health(struct remote *r, const char *other_kind)
{
    void (*told)(void *ctx, enum engine_health h) = r->health_told;

    r->health_told = NULL;
    if (other_kind && (!r->other_kind || strcmp(r->other_kind, other_kind) != 0))
        log_error(NULL, "an engine is of a different kind than --engine says: it gets no calls",
                  LOG_T("engine", r->target->name), LOG_T("kind", r->adapter->kind),
                  LOG_T("is", other_kind));
    r->other_kind = other_kind;
    if (told)
        told(r->health_ctx, other_kind ? ENGINE_DOWN : ENGINE_UP);
}

static void on_kind_known(struct remote *r, const char *other_kind)
{
    if (other_kind)
        r->informed = false;
    answer_health(r, other_kind);
    if (!other_kind)
        go_on_informed(r);
}

static void take_info(struct remote *r, int status, struct str text)
{
    if (status == 200) {
        remote_read_info(r, text);
        r->informed = true;
        on_kind_known(r, r->facts.other_kind);
        return;
    }
    r->informed = status < 500; /* an engine that lacks the path will not have it later */
    if (status < 500)
        kind_probe_begin(r, on_kind_known);
    else
        on_kind_known(r, NULL);
}

/* Records the answer to a probe. A replica that was away may be a different server when it answers
 * again, so its report about itself is forgotten. */
static void note_probe(struct remote *r, bool well)
{
    if (well && (r->away || r->probe_failed)) {
        r->informed = false;
        r->refuses_budgets = r->refuses_ranks = false;
        r->refused_budget = -1;
        r->experts_lost = EXPERTS_COME;
        r->tells_weights = r->tells_spans = r->lacks_aborts = false;
        r->echoes = 0;
        r->lacks = 0;
        r->facts = (struct engine_facts){0};
    }
    r->away = !well;
    r->probe_failed = false;
}

static void aside_done(void *ctx)
{
    struct aside a = *(struct aside *)ctx;

    list_remove(&((struct aside *)ctx)->item);
    free(ctx);
    if (a.answer)
        note_probe(a.remote, a.status < 500);
    /* Every answer except an error of its own shows that it is alive. Its settings show its kind.
     */
    if (a.answer && a.status == 200 && a.remote->wire->info && !a.remote->informed) {
        a.remote->health_told = a.answer;
        a.remote->health_ctx = a.ctx;
        ask_info(a.remote); /* on the probe's connection */
    } else if (a.answer) {
        a.answer(a.ctx, a.status < 500 ? ENGINE_UP : ENGINE_DOWN);
        kv_waited(a.remote);
    }
    if (a.info)
        take_info(a.remote, a.status, buf_str(&a.text));
    if (a.ends) {
        session_ends_over(a.remote->ends, a.status < 500, a.remote->options->metrics);
        tell_ends(a.remote);
    }
    if (a.version)
        take_version(a.remote, a.status, buf_str(&a.text));
    if (a.aborts && (a.status == 404 || a.status == 405))
        a.remote->lacks_aborts = true;
    if (a.weights)
        take_weights(&a, a.status);
    if (a.kv)
        take_kv(a.remote, a.status, a.kv_text, a.kv, a.ctx);
    answer_done(&a);
    if (a.pass)
        a.pass->done(a.ctx);
}

static void aside_failed(void *ctx, const struct err *e, bool began)
{
    struct aside a = *(struct aside *)ctx;

    (void)began;
    list_remove(&((struct aside *)ctx)->item);
    free(ctx);
    answer_done(&a);
    if (a.answer && !a.remote->probe_failed) {
        a.remote->probe_failed = true;
        log_warn(NULL, "engine probe failed", LOG_T("engine", a.remote->target->name),
                 LOG_T("why", e->text));
    }
    if (a.answer)
        a.answer(a.ctx, e->kind == ERR_ENGINE_TIMEOUT ? ENGINE_SLOW : ENGINE_DOWN);
    if (a.weights)
        a.weights(a.ctx, (struct str){0});
    if (a.info) {
        answer_health(a.remote, NULL);
        kv_waited(a.remote);
    }
    if (a.kv)
        take_kv(a.remote, 0, NULL, a.kv, a.ctx);
    if (a.ends) {
        session_ends_over(a.remote->ends, false, a.remote->options->metrics);
        tell_ends(a.remote);
    }
    if (a.pass)
        a.pass->failed(a.ctx, e);
}

static const struct http_events aside_events = {aside_head, aside_body, aside_done, aside_failed};

static struct aside *aside_start(struct remote *r, const struct http_request *q,
                                 const struct aside *like)
{
    struct aside *a = mem_alloc(sizeof(*a));

    *a = *like;
    a->remote = r;
    list_prepend(&r->asides, &a->item);
    a->http = http_client_start(r->client, q, &aside_events, a);
    return a;
}

/* Sends a GET that belongs to no session. */
static struct aside *get_aside(struct remote *r, const char *path, uint64_t timeout_ms,
                               const struct aside *like)
{
    struct http_request h = {
        .method = "GET", .path = str_cstr(path), .total_timeout_ms = timeout_ms};
    struct buf headers = {0};
    struct aside *a;

    remote_headers(r, &headers, (struct str){0}, (struct str){0}, (struct str){0});
    h.headers = buf_str(&headers);
    a = aside_start(r, &h, like);
    buf_done(&headers);
    return a;
}

static void ask_info(struct remote *r)
{
    const struct aside *a;

    LIST_EACH(&r->asides, a, struct aside, item) {
        if (a->info)
            return; /* requested, not answered yet */
    }
    (void)get_aside(r, r->wire->info, r->options->health_timeout_ms, &(struct aside){.info = true});
}

static struct aside *ask_weights(struct remote *r, void (*told)(void *ctx, struct str version),
                                 void *ctx)
{
    return get_aside(r, r->wire->weights, WEIGHTS_TIMEOUT_MS,
                     &(struct aside){.weights = told, .ctx = ctx});
}

static void ask_kv(struct remote *r, void (*told)(void *ctx, const struct engine_kv *kv), void *ctx)
{
    if (!r->wire->kv) {
        take_kv(r, 0, NULL, told, ctx);
        return;
    }
    (void)get_aside(
        r, r->wire->kv, r->options->health_timeout_ms,
        &(struct aside){.kv = told, .kv_text = mem_zalloc(sizeof(struct kv_told)), .ctx = ctx});
}

static void kv_waited(struct remote *r)
{
    void (*told)(void *ctx, const struct engine_kv *kv) = r->kv_told;

    r->kv_told = NULL;
    if (told)
        ask_kv(r, told, r->kv_ctx);
}

/* The settings, which are requested after a successful probe, may have figures that the metrics
 * lack, so they come first. If several ask meanwhile, only the first gets the answer; a probe
 * follows it. */
void remote_look_at_kv(void *replica, void (*told)(void *ctx, const struct engine_kv *kv),
                       void *ctx)
{
    struct remote *r = replica;

    if (r->wire->info && !r->informed) {
        r->kv_told = told;
        r->kv_ctx = ctx;
        return;
    }
    ask_kv(r, told, ctx);
}

static void ask_version(struct remote *r)
{
    (void)get_aside(r, r->wire->version, WEIGHTS_TIMEOUT_MS, &(struct aside){.version = true});
}

/* The request about the front follows, because its probe needs to know whether versions are
 * reported. */
static void on_weights(void *ctx, struct str version)
{
    struct remote *r = ctx;

    r->tells_weights = version.p != NULL;
    if (version.p)
        log_info(NULL, "engine tells the version of its weights: it is asked around each call",
                 LOG_T("engine", r->target->name), LOG_S("version", version));
    if (r->wire->version && !r->facts.says_rust)
        ask_version(r);
}

static void look_for_weights(struct remote *r)
{
    (void)ask_weights(r, on_weights, r);
}

struct aside *remote_ask_weights(struct remote *r, void (*told)(void *ctx, struct str version),
                                 void *ctx)
{
    return r->tells_weights && !r->tells_spans ? ask_weights(r, told, ctx) : NULL;
}

bool remote_tells_weights(const struct remote *r)
{
    return r->tells_weights;
}

/* Sends a POST of which only the answer's status matters. The handler is the one that is set in
 * `like`. */
static void tell(struct remote *r, struct str session_id, struct wire_send *s,
                 const struct aside *like)
{
    struct buf headers = {0};
    struct http_request h = {.method = "POST", .total_timeout_ms = ABORT_TIMEOUT_MS};

    remote_headers(r, &headers, session_id, STR("application/json"), (struct str){0});
    h.path = str_cstr(s->path);
    h.headers = buf_str(&headers);
    h.body = &s->body;
    (void)aside_start(r, &h, like);
    buf_done(&headers);
}

void remote_abort(struct remote *r, const struct engine_request *q, struct str returned)
{
    struct wire_send s = {0};
    struct buf rid = {0};

    if (!r->wire->abort || r->lacks_aborts ||
        (r->wire->aborts_by_first_route && (!r->route_sure || r->route != 0)))
        return;
    remote_rid(&rid, q);
    r->wire->abort(r, buf_str(&rid), returned, &s);
    tell(r, q->session_id, &s, &(struct aside){.aborts = true});
    buf_done(&rid);
}

/* Sends notices of ended sessions, but not while the engine is away: a different server may come
 * back, and is first asked what it keeps. */
static void tell_ends(struct remote *r)
{
    char *id;

    if (r->away || r->probe_failed || !r->informed)
        return;
    if (!r->facts.by_session)
        session_ends_forget(r->ends);
    while ((id = session_ends_next(r->ends))) {
        struct wire_send s = {0};

        r->wire->end_session(str_cstr(id), &s);
        tell(r, str_cstr(id), &s, &(struct aside){.ends = true});
        free(id);
    }
}

void remote_end_session(void *replica, struct str session_id)
{
    struct remote *r = replica;

    if (!r->wire->end_session || (r->informed && !r->facts.by_session))
        return;
    session_ends_add(r->ends, session_id, r->options->metrics);
    tell_ends(r);
}

void remote_probe(void *replica, void (*answer)(void *ctx, enum engine_health h), void *ctx)
{
    struct remote *r = replica;

    (void)get_aside(r, "/health", r->options->health_timeout_ms,
                    &(struct aside){.answer = answer, .ctx = ctx});
}

/* Prepares the body. A long one that the caller keeps is sent from where it is, after its first
 * byte, because copying megabytes would hold the loop. */
static void pass_body(const struct engine_pass *p, struct buf *body, struct http_request *h)
{
    size_t copied = p->body_stays && p->body.len > PASS_COPIED ? 1 : p->body.len;

    buf_add_str(body, str_sub(p->body, 0, copied));
    if (body->len > 0)
        h->body = body;
    if (copied == p->body.len)
        return;
    h->inserts = mem_alloc(sizeof(*h->inserts));
    *h->inserts = (struct http_insert){.bytes = str_sub(p->body, copied, SIZE_MAX), .at = copied};
    h->n_inserts = 1;
}

void *remote_pass(void *replica, const struct engine_pass *p,
                  const struct engine_pass_events *events, void *ctx)
{
    struct remote *r = replica;
    struct http_request h = {.method = p->method,
                             .idle_timeout_ms = r->options->idle_timeout_ms,
                             .total_timeout_ms = r->options->timeout_ms};
    struct buf headers = {0}, path = {0}, body = {0};
    struct aside *a;

    pass_body(p, &body, &h);
    buf_add_str(&path, p->path);
    if (p->query.len > 0)
        buf_printf(&path, "?%.*s", (int)p->query.len, p->query.p);
    remote_headers(r, &headers, p->session_id, p->content_type, p->accept);
    h.path = buf_str(&path);
    h.headers = buf_str(&headers);
    a = aside_start(r, &h, &(struct aside){.pass = events, .ctx = ctx});
    buf_done(&body);
    buf_done(&path);
    buf_done(&headers);
    return a;
}

void remote_pass_cancel(void *passed)
{
    aside_cancel(passed);
}

void remote_pass_pause(void *passed)
{
    http_call_pause(((struct aside *)passed)->http);
}

void remote_pass_resume(void *passed)
{
    http_call_resume(((struct aside *)passed)->http);
}
