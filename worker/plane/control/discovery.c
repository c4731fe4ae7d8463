/*
 * Reads the source of engines (discovery.h). A file is read when it is unchanged for two looks, a
 * second apart, so that a file that is written in place is not read half way. A router is asked
 * every --engine-health-interval through an engine of kind sglang that is never called, which has
 * the key and TLS settings. A list that cannot be applied is logged once, and the engines stay. New
 * engines that do not answer are tried again at that interval.
 */
#include "worker/plane/control/discovery.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_source.h"
#include "worker/engine/pool/engine_target.h"
#include "worker/engine/pool/passing.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"

enum { SOURCE_MAX = 4 << 20 };

struct discovery {
    struct service *service;
    struct arena arena;
    struct engine_source source;
    struct engine_target target; /* address of the router */
    struct engine_options options;
    const struct engine_adapter *adapter; /* adapter of the router; NULL: the source is a file */
    /* the router's client, and the request in progress, or NULL */
    void *remote, *asked;
    int status;
    struct buf answer;
    uint64_t seen;   /* stamp of the file at the last look */
    uint64_t obeyed; /* stamp of the file, or hash of the router's list, that was last applied */
    bool whole;      /* that list is applied completely */
    bool ordering;
    /* time of the next request to a router, or of the next try of engines that did not answer */
    uint64_t next_ms;
    struct buf told; /* the last error that was logged */
};

static void complain(struct discovery *d, const char *what, struct str why)
{
    if (str_eq(buf_str(&d->told), why))
        return;
    buf_set(&d->told, why);
    log_warn(NULL, what, LOG_T("source", d->source.where), LOG_S("why", why));
}

/* --- applying a list --- */

static void on_taken(void *ctx, struct str silent, const struct err *e)
{
    struct discovery *d = ctx;

    d->ordering = false;
    d->whole = !e && silent.len == 0;
    if (e && e->kind != ERR_STATE_CONFLICT) /* a different worker is changing the set */
        complain(d, "the engines that are told cannot be obeyed", str_cstr(e->text));
    else if (silent.len > 0)
        complain(d, "engines that are told do not answer yet", silent);
    else if (!e)
        buf_clear(&d->told);
}

/* Applies the engines of a list that has this stamp. */
static void obey(struct discovery *d, const struct engine_texts *t, uint64_t stamp)
{
    d->obeyed = stamp;
    d->whole = true; /* the list is not tried again until it changes */
    if (t->left_out > 0)
        log_info(NULL, "workers that only prefill or decode, or speak gRPC, are left out",
                 LOG_T("source", d->source.where), LOG_U("workers", t->left_out));
    if (t->n == 0 && !t->none) {
        complain(d, "no engines are told: those that there are stay", STR("an empty list"));
        return;
    }
    d->ordering = true;
    engines_apply_source(d->service, t, on_taken, d);
}

static void look_at_file(struct discovery *d, uint64_t now)
{
    uint64_t stamp = file_stamp(d->source.where), before = d->seen;
    struct engine_texts t = {0};
    struct arena a = {0};
    struct buf text = {0};
    struct err e = {0};

    d->seen = stamp;
    if (stamp == 0) {
        complain(d, "the engines that are told cannot be read", STR("there is no such file"));
        return;
    }
    if (stamp != before || (stamp == d->obeyed && (d->whole || now < d->next_ms)))
        return;
    d->next_ms = now + (uint64_t)d->service->config->engine_health_interval_ms;
    d->obeyed = stamp;
    d->whole = true;
    if (file_read(d->source.where, SOURCE_MAX, &text, &e) ||
        engine_source_lines(&a, buf_str(&text), &t, &e))
        complain(d, "the engines that are told cannot be read", str_cstr(e.text));
    else
        obey(d, &t, stamp);
    vec_done(&t);
    buf_done(&text);
    arena_done(&a);
}

/* --- asking a router --- */

static uint64_t hash_of(const struct engine_texts *t)
{
    uint64_t hash = 1;

    for (size_t i = 0; i < t->n; i++)
        hash = str_hash(str_cstr(t->at[i]), hash);
    return hash | 1;
}

static void on_head(void *ctx, int status, struct str content_type)
{
    (void)content_type;
    ((struct discovery *)ctx)->status = status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct discovery *d = ctx;

    buf_add_up_to(&d->answer, bytes, SOURCE_MAX);
}

static void on_done(void *ctx)
{
    struct discovery *d = ctx;
    struct engine_texts t = {0};
    struct arena a = {0};
    struct err e = {0};

    d->asked = NULL;
    if (d->status != 200)
        (void)err_set(&e, ERR_ENGINE_INVALID, "it answers %d", d->status);
    else
        (void)engine_source_workers(&a, &d->source, buf_str(&d->answer), &t, &e);
    if (e.kind != ERR_NONE)
        complain(d, "the engines that are told cannot be read", str_cstr(e.text));
    else if (hash_of(&t) != d->obeyed || !d->whole)
        obey(d, &t, hash_of(&t));
    vec_done(&t);
    arena_done(&a);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct discovery *d = ctx;

    d->asked = NULL;
    complain(d, "the engines that are told cannot be read", str_cstr(e->text));
}

static const struct engine_pass_events events = {on_head, on_body, on_done, on_failed};

static void ask_router(struct discovery *d, uint64_t now)
{
    struct engine_pass question = {
        .method = "GET", .path = STR("/workers"), .accept = STR("application/json")};

    if (now < d->next_ms)
        return;
    d->next_ms = now + (uint64_t)d->service->config->engine_health_interval_ms;
    buf_clear(&d->answer);
    d->status = 0;
    d->asked = d->adapter->pass(d->remote, &question, &events, d);
}

/* --- starting and ending --- */

static struct discovery *discovery_new(struct service *a)
{
    const struct config *c = a->config;
    struct discovery *d = mem_zalloc(sizeof(*d));
    struct err e = {0};

    d->service = a;
    /* cannot fail, because the setting was checked at the start */
    (void)engine_source_parse(&d->arena, c->engine_source, &d->source, &e);
    d->options = (struct engine_options){
        .ca_file = c->engine_ca_file,
        .insecure_tls = c->engine_insecure_tls,
        .max_inflight = 1,
        .connect_timeout_ms = (uint64_t)c->engine_connect_timeout_ms,
        .timeout_ms = (uint64_t)c->engine_health_timeout_ms,
    };
    if (!d->source.router)
        return d;
    if (engine_target_parse(&d->arena, d->source.as_engine, &d->target, &e) == 0) {
        d->adapter = engine_adapter_find("sglang");
        if (d->adapter->open(d->adapter, a->calls.loop, &d->target, &d->options, &d->remote, &e))
            d->adapter = NULL;
    }
    if (e.kind != ERR_NONE)
        complain(d, "the engines that are told cannot be read", str_cstr(e.text));
    return d;
}

void discovery_look(struct service *a)
{
    const char *setting = a->config->engine_source;
    struct discovery *d;

    if (!setting || a->draining)
        return;
    if (!siblings_lead(a->heritage)) {
        if (a->discovery)
            a->discovery->obeyed = 0; /* the new leader may have changed the set */
        return;
    }
    if (!a->discovery)
        a->discovery = discovery_new(a);
    d = a->discovery;
    if (d->ordering || d->asked)
        return;
    if (!d->source.router)
        look_at_file(d, clock_ms());
    else if (d->adapter)
        ask_router(d, clock_ms());
}

void discovery_done(struct service *a)
{
    struct discovery *d = a->discovery;

    if (!d)
        return;
    if (d->asked)
        d->adapter->pass_cancel(d->asked);
    if (d->remote)
        d->adapter->close(d->remote);
    buf_done(&d->answer);
    buf_done(&d->told);
    arena_done(&d->arena);
    free(d);
    a->discovery = NULL;
}
