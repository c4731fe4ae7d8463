/* Finds mistakes in a worker's settings before anything starts (worker.h): engines, sinks,
 * passthrough, names of parsers and families, and the model itself. Every mistake is one line, so
 * that an operator sees all of them at once. */

#include "common/codec/input_value.h"
#include "common/codec/json.h"
#include "common/net/tls.h"
#include "common/net/web_rules.h"
#include "common/proc/config.h"
#include "worker/engine/pool/doors.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/setup.h"
#include "worker/sink/sink_target.h"
#include "worker/text/model/model.h"
#include "worker/text/model/model_family.h"
#include "worker/text/parsers/kinds.h"
#include "worker/trace/span_exporter.h"
#include "worker/worker.h"

static const struct input_rule sampling = {.name = "--evaluation-sampling",
                                           .kind = INPUT_KIND_SAMPLING};

/* Checks the setting. `text` is a JSON object of sampling parameters, or NULL. Returns -1 with
 * ERR_INVALID or ERR_CONFIG that says what is wrong. */
static int evaluation_check(const char *text, struct err *e)
{
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = text ? json_parse_once(&a, str_cstr(text), &v, e) : 0;

    if (rc == 0 && text && !json_is(v, JSON_OBJECT))
        rc = err_set(e, ERR_CONFIG, "not a JSON object");
    if (rc == 0)
        rc = input_value_check(&a, &sampling, v, false, e);
    arena_done(&a);
    return rc;
}

static void note(struct buf *mistakes, const char *flag, const struct err *e)
{
    buf_printf(mistakes, "--%s: %s\n", flag, e->text);
}

/* Checks the address and the kind of each engine. */
static void check_engines(const struct config *c, struct buf *mistakes)
{
    struct engine_options o = {.ca_file = c->engine_ca_file,
                               .insecure_tls = c->engine_insecure_tls};
    struct engine_set set = {0};
    size_t before = mistakes->len;
    struct err e;

    engine_set_of(&set, (const char *const *)c->engine.at, c->engine.n);
    if (set.n != c->engine.n && c->engine.n > 1)
        buf_puts(mistakes, "--engine: \"none\" excludes other engines\n");
    for (size_t i = 0; i < set.n; i++) {
        if (engine_check(set.at[i].text, &o, &e))
            note(mistakes, "engine", &e);
    }
    if (mistakes->len == before && engine_set_check(&set, &e))
        note(mistakes, "engine", &e);
    engine_set_done(&set);
}

/* Checks --engine-source. */
static void check_source(const struct config *c, struct buf *mistakes)
{
    struct engine_options o = {.ca_file = c->engine_ca_file,
                               .insecure_tls = c->engine_insecure_tls};
    struct err e;

    if (c->engine_source && engine_source_check(c->engine_source, &o, &e))
        note(mistakes, "engine-source", &e);
}

static void check_traces(const struct config *c, struct buf *mistakes)
{
    struct err e;

    if (c->otlp_endpoint && c->otlp_endpoint[0] &&
        span_exporter_check(c->otlp_endpoint, c->otlp_headers_file, &e))
        note(mistakes, "otlp-endpoint", &e);
}

/* Checks the target of each scorer. */
static void check_scorers(const struct config *c, struct buf *mistakes)
{
    struct err e;

    if (scorers_check((const char *const *)c->scorer.at, c->scorer.n, &e))
        note(mistakes, "scorer", &e);
}

static void check_sinks(const struct config *c, struct buf *mistakes)
{
    struct err e;

    for (size_t i = 0; i < c->sink.n; i++) {
        if (target_check(c->sink.at[i], &e))
            buf_printf(mistakes, "%s\n", e.text);
    }
}

/* Checks the names of parsers and families. Mistakes of the model itself are reported
 * separately. */
static void check_names(struct model_options *o, struct buf *mistakes)
{
    enum reasoning_kind reasoning;
    enum tool_kind tool;

    if (o->tool_parser && tool_kind_named(str_cstr(o->tool_parser), &tool)) {
        buf_printf(mistakes, "--tool-parser: \"%s\" is not one of ", o->tool_parser);
        tool_kind_names(mistakes);
        buf_add_c(mistakes, '\n');
        o->tool_parser = NULL;
    }
    if (o->reasoning_parser && reasoning_kind_named(str_cstr(o->reasoning_parser), &reasoning)) {
        buf_printf(mistakes, "--reasoning-parser: \"%s\" is not one of ", o->reasoning_parser);
        reasoning_kind_names(mistakes);
        buf_add_c(mistakes, '\n');
        o->reasoning_parser = NULL;
    }
    if (o->tito_family && !family_named(o->tito_family)) {
        buf_printf(mistakes, "--tito-family: \"%s\" is not one of %s\n", o->tito_family,
                   family_names());
        o->tito_family = NULL;
    }
}

/* Loads the model, because nothing else shows whether a folder contains one. */
static void load_model(const struct config *c, const struct model_options *o, struct buf *mistakes,
                       struct buf *warnings)
{
    struct model *m = NULL;
    struct err e;

    if (model_load(o, &m, &e)) {
        note(mistakes, "model", &e);
        return;
    }
    if (mistakes->len == 0) /* else it might warn of a setting that is wrong */
        setup_warn(c, m, warnings);
    model_free(m);
}

static void check_evaluation(const struct config *c, struct buf *mistakes)
{
    struct err e = {0};

    if (evaluation_check(c->evaluation_sampling, &e))
        note(mistakes, "evaluation-sampling", &e);
}

static void check_passthrough(const struct config *c, struct buf *mistakes)
{
    struct err e;

    if (door_setting_check(c->passthrough, &e))
        note(mistakes, "passthrough", &e);
}

/* Checks from where images may be fetched, and the certificates for that. */
static void check_web(const struct config *c, struct buf *mistakes)
{
    struct tls_context *context = NULL;
    struct web_rules *rules = NULL;
    struct err e;

    for (size_t i = 0; i < c->media_fetch.n + c->media_fetch_address.n; i++) {
        size_t n_hosts = i < c->media_fetch.n;
        const struct config_list *list = n_hosts ? &c->media_fetch : &c->media_fetch_address;
        const char *one = list->at[n_hosts ? i : i - c->media_fetch.n];

        if (web_rules_new(&one, n_hosts, &one, 1 - n_hosts, &rules, &e))
            buf_printf(mistakes, "--%s\n", e.text);
        else
            web_rules_free(rules);
    }
    if (c->media_fetch_ca_file && *c->media_fetch_ca_file &&
        tls_context_new(c->media_fetch_ca_file, false, &context, &e))
        note(mistakes, "media-fetch-ca-file", &e);
    tls_context_free(context);
}

/* Loading the model takes seconds, so that is done only when requested or when a mistake was
 * found. */
void worker_check(const struct config *c, bool model, struct buf *mistakes, struct buf *warnings)
{
    struct model_options o = setup_model(c);

    check_engines(c, mistakes);
    check_source(c, mistakes);
    check_scorers(c, mistakes);
    check_traces(c, mistakes);
    check_sinks(c, mistakes);
    check_passthrough(c, mistakes);
    check_evaluation(c, mistakes);
    check_web(c, mistakes);
    check_names(&o, mistakes);
    if (model || mistakes->len > 0)
        load_model(c, &o, mistakes, warnings);
}

int worker_reach_sink(const char *sink, struct err *e)
{
    return target_reach(sink, e);
}
