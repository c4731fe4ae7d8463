/*
 * Parses an argument from its end. Options are cut off while the last ",name=value" has a known
 * name, then NAME= at the front, then the kind up to the first ':'. The remainder is the rest, a
 * URL or a script's path with any content. The order is from the end, because a path may have
 * commas and a URL may have '='. For the same reason an unknown name after a script's path is an
 * error only if it is similar to a known one. Without NAME= and name= the argument without its
 * options is the engine's name.
 */
#include "worker/engine/pool/engine_target.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/nearest.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_set.h"

enum { NAME_MAX_BYTES = 64 };

static int number_of(struct str value, double *ret)
{
    char text[32];
    char *end;

    if (value.len == 0 || value.len >= sizeof(text))
        return -1;
    memcpy(text, value.p, value.len);
    text[value.len] = '\0';
    *ret = strtod(text, &end);
    return *end == '\0' && *ret >= 0 && *ret <= 1e9 ? 0 : -1;
}

static const char *const options[] = {"weight",   "key-file",     "token-ids",   "logprobs",
                                      "priority", "dp-ranks",     "name",        "model",
                                      "delay_ms", "max-inflight", "tokens_per_s"};

static bool option_known(struct str name)
{
    return str_is_one_of(name, options, ARRAY_LEN(options));
}

static bool is_word(struct str s)
{
    return s.len > 0 && str_has_only(s, "_-");
}

static bool is_name(struct str s)
{
    return s.len > 0 && str_has_only(s, "_-.");
}

static bool is_file(struct str rest)
{
    return str_starts(rest, STR("builtin:script:")) || str_starts(rest, STR("builtin:recorded:"));
}

/* Checks ",name=value" with an unknown name. In a file's path it may belong to the file's name.
 * There, only a name that looks like a typing mistake is an error. */
static int check_unknown(struct str rest, struct str name, struct err *e)
{
    struct nearest near = nearest_to(name);

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        nearest_offer(&near, options[i]);
    if (!is_word(name) || (is_file(rest) && !near.name))
        return 0;
    return err_set(e, ERR_CONFIG,
                   "unknown engine option \"%.*s\"%s%s%s; known: weight, key-file, token-ids, "
                   "logprobs, priority, dp-ranks, name, model, max-inflight, delay_ms, "
                   "tokens_per_s",
                   (int)MIN_OF(name.len, (size_t)40), name.p, near.name ? ", did you mean \"" : "",
                   near.name ? near.name : "", near.name ? "\"?" : "");
}

static int read_count(const char *name, struct str value, uint32_t max, uint32_t *ret,
                      struct err *e)
{
    uint64_t n = 0;

    if (str_to_u64(value, max, &n) || n == 0)
        return err_set(e, ERR_CONFIG,
                       "engine option %s must be a number from 1 to %u, not \"%.*s\"", name, max,
                       (int)MIN_OF(value.len, (size_t)40), value.p);
    *ret = (uint32_t)n;
    return 0;
}

static int read_name(struct arena *a, struct str name, const char **ret, struct err *e)
{
    if (!is_name(name) || name.len > NAME_MAX_BYTES)
        return err_set(e, ERR_CONFIG,
                       "an engine's name is 1 to %d of A-Z a-z 0-9 _ - . not \"%.*s\"",
                       NAME_MAX_BYTES, (int)MIN_OF(name.len, (size_t)80), name.p);
    *ret = arena_cstr(a, name);
    return 0;
}

static int number_set(struct str name, struct str value, struct engine_target *t, struct err *e)
{
    double number = 0;

    if (number_of(value, &number))
        return err_set(e, ERR_CONFIG,
                       "engine option %.*s must be a number from 0 to 1e9, not \"%.*s\"",
                       (int)name.len, name.p, (int)MIN_OF(value.len, (size_t)40), value.p);
    if (str_eq_c(name, "weight"))
        t->weight = number;
    else if (str_eq_c(name, "delay_ms"))
        t->delay_ms = (uint64_t)number;
    else
        t->tokens_per_s = number;
    return 0;
}

static int option_set(struct arena *a, struct str name, struct str value, struct engine_target *t,
                      struct err *e)
{
    if (str_eq_c(name, "key-file")) {
        t->key_file = arena_cstr(a, value);
        return 0;
    }
    if (str_eq_c(name, "token-ids")) {
        if (!str_eq_c(value, "vllm") && !str_eq_c(value, "sglang") && !str_eq_c(value, "sglext"))
            return err_set(e, ERR_CONFIG,
                           "engine option token-ids must be vllm, sglang or sglext, not \"%.*s\"",
                           (int)MIN_OF(value.len, (size_t)40), value.p);
        t->ids_of = arena_cstr(a, value);
        return 0;
    }
    if (str_eq_c(name, "logprobs")) {
        if (!str_eq_c(value, "raw") && !str_eq_c(value, "temperature") &&
            !str_eq_c(value, "processed"))
            return err_set(e, ERR_CONFIG,
                           "engine option logprobs is raw, temperature or processed");
        t->logprobs = arena_cstr(a, value);
        return 0;
    }
    if (str_eq_c(name, "priority")) {
        t->priority = str_eq_c(value, "on");
        return t->priority || str_eq_c(value, "off")
                   ? 0
                   : err_set(e, ERR_CONFIG, "engine option priority is on or off");
    }
    if (str_eq_c(name, "name"))
        return read_name(a, value, &t->own, e);
    if (str_eq_c(name, "model")) {
        t->model = arena_cstr(a, value);
        return value.len ? 0 : err_set(e, ERR_CONFIG, "engine option model is empty");
    }
    if (str_eq_c(name, "max-inflight"))
        return read_count("max-inflight", value, UINT32_MAX, &t->max_inflight, e);
    if (str_eq_c(name, "dp-ranks"))
        return read_count("dp-ranks", value, UINT16_MAX, &t->dp_ranks, e);
    return number_set(name, value, t, e);
}

/* Cuts known options off the end of *rest, the last one first. */
static int take_options(struct arena *a, struct str *rest, struct engine_target *t, struct err *e)
{
    for (;;) {
        size_t comma = rest->len;
        struct str part;
        size_t eq;

        while (comma > 0 && rest->p[comma - 1] != ',')
            comma--;
        if (comma == 0)
            return 0;
        part = str_sub(*rest, comma, SIZE_MAX);
        eq = str_find(part, STR("="), 0);
        if (eq == SIZE_MAX)
            return 0;
        if (!option_known(str_sub(part, 0, eq)))
            return check_unknown(*rest, str_sub(part, 0, eq), e);
        if (option_set(a, str_sub(part, 0, eq), str_sub(part, eq + 1, SIZE_MAX), t, e))
            return -1;
        rest->len = comma - 1;
    }
}

/* Cuts NAME= off the front: a '=' before the first ':', because a URL may have others. */
static int take_name(struct arena *a, struct str *rest, struct engine_target *t, struct err *e)
{
    size_t eq = str_find(*rest, STR("="), 0);
    size_t colon = str_find(*rest, STR(":"), 0);
    if (eq == SIZE_MAX || eq > colon)
        return 0;
    if (read_name(a, str_sub(*rest, 0, eq), &t->label, e))
        return -1;
    *rest = str_sub(*rest, eq + 1, SIZE_MAX);
    return 0;
}

static int check_option(const struct engine_adapter *a, bool set, const char *name, struct err *e)
{
    if (!set || engine_adapter_lists(a->options, name))
        return 0;
    return err_set(e, ERR_CONFIG, "engine option %s is not for kind %s", name, a->kind);
}

/* Refuses a URL whose path ends in a path of the API: the gateway appends that, so every call would
 * fail with 404. Only for kind openai the URL may end with the version. */
static int check_url(const struct engine_target *t, struct err *e)
{
    static const char *const ends[] = {
        "/chat/completions",      "/completions", "/v1/chat/completions", "/v1/completions",
        "/inference/v1/generate", "/generate",    "/completion",          "/v1"};
    bool passes = engine_adapter_find(t->kind)->passes_request;
    struct str url = str_cstr(t->rest), longest = {0};

    while (str_ends(url, STR("/")))
        url.len--;
    /* for kind openai, /v1 is permitted */
    for (size_t i = 0; i < (passes ? 2 : ARRAY_LEN(ends)); i++)
        if (str_ends(url, str_cstr(ends[i])) && strlen(ends[i]) > longest.len)
            longest = str_cstr(ends[i]);
    if (longest.len == 0)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "the address ends with %.*s, which is added to each call: write %s:%.*s",
                   (int)longest.len, longest.p, t->kind,
                   (int)MIN_OF(url.len - longest.len, (size_t)200), url.p);
}

int engine_target_parse(struct arena *a, const char *text, struct engine_target *ret, struct err *e)
{
    struct str all = str_cstr(text);
    struct str rest = all;
    const struct engine_adapter *adapter;
    size_t colon;

    *ret = (struct engine_target){.weight = 1.0};
    if (take_options(a, &rest, ret, e))
        return -1;
    ret->name = ret->whole = arena_cstr(a, rest);
    if (take_name(a, &rest, ret, e))
        return -1;
    if (ret->own)
        ret->name = ret->own;
    else if (ret->label && strcmp(ret->label, ENGINE_POOL_POLICY) != 0)
        ret->name = ret->label;
    colon = str_find(rest, STR(":"), 0);
    ret->kind = arena_cstr(a, str_sub(rest, 0, colon == SIZE_MAX ? rest.len : colon));
    ret->rest = colon == SIZE_MAX ? "" : arena_cstr(a, str_sub(rest, colon + 1, SIZE_MAX));
    adapter = engine_adapter_find(ret->kind);
    if (!adapter)
        return err_set(e, ERR_CONFIG, "unknown engine kind \"%.40s\"; known: %s (KIND:URL)",
                       ret->kind, engine_kinds);
    if (check_option(adapter, ret->priority, "priority", e) ||
        check_option(adapter, ret->dp_ranks > 0, "dp-ranks", e))
        return -1;
    if (ret->logprobs && (adapter->asks_basis != BASIS_UNKNOWN || !adapter->basis))
        return err_set(e, ERR_CONFIG,
                       "engine option logprobs is for kinds sglang, vllm and openai; %s reports it",
                       ret->kind);
    return adapter->wire ? check_url(ret, e) : 0;
}
