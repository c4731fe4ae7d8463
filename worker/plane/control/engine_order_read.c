/* Reads what an order does to the set of engines (engine_order.h). */
#include "worker/plane/control/engine_order.h"

#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_source.h"
#include "worker/plane/service/service.h"

const char *engine_order_name(struct engine_order *o, const char *text)
{
    return engine_set_name(o->next.pools.n > 0 ? &o->next : &o->now, &o->arena, text);
}

const struct engine_entry *engine_order_find(const struct engine_set *s, struct str text)
{
    for (size_t i = 0; i < s->n; i++) {
        if (str_eq_c(text, s->at[i].text))
            return &s->at[i];
    }
    return NULL;
}

/* Reports whether the name matches the engine's name, its pool's, or its whole argument. */
static bool is_called(struct engine_order *o, const struct engine_entry *entry, struct str name)
{
    const char *known = engine_set_name(&o->now, &o->arena, entry->text);
    const char *pool = engine_set_pool_of(&o->now, &o->arena, entry->text);

    return (known && str_eq_c(name, known)) || (pool && str_eq_c(name, pool)) ||
           str_eq_c(name, entry->text);
}

static bool is_any_called(struct engine_order *o, struct str name)
{
    for (size_t i = 0; i < o->now.n; i++) {
        if (is_called(o, &o->now.at[i], name))
            return true;
    }
    return false;
}

bool engine_order_is_as_before(const struct engine_order *o)
{
    for (size_t i = 0; i < o->next.n && o->next.n == o->now.n; i++) {
        if (strcmp(o->next.at[i].text, o->now.at[i].text) != 0)
            return false;
    }
    return o->next.n == o->now.n && o->next.pools.n == o->now.pools.n;
}

/* Returns the lowest number that no engine of the old or the new set has, and none that still
 * drains. */
static unsigned free_number(const struct engine_order *o)
{
    const struct engine_set *const sets[] = {&o->now, &o->next};

    for (unsigned number = 0;; number++) {
        bool taken = engine_pool_at_number(o->service->calls.engines, number) > 0;

        for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
            for (size_t i = 0; i < sets[k]->n; i++)
                taken = taken || sets[k]->at[i].number == number;
        }
        if (!taken)
            return number;
    }
}

static void add_entry(struct engine_order *o, struct str text)
{
    const struct engine_entry *known = engine_order_find(&o->now, text);

    if (!engine_order_find(&o->next, text))
        engine_set_add(&o->next, text, known ? known->number : free_number(o));
}

static int check_entry(struct engine_order *o, uint32_t i, struct str text, struct err *e)
{
    const struct config *c = o->service->config;
    struct engine_options with = {.ca_file = c->engine_ca_file,
                                  .insecure_tls = c->engine_insecure_tls};
    struct err why;

    if (engine_check(arena_cstr(&o->arena, text), &with, &why) == 0)
        return 0;
    return err_field(e, "engines", "engines[%u]: %s", i, why.text);
}

static bool has_policy(struct engine_order *o, const struct engine_set *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!engine_set_pool_of(s, &o->arena, s->at[i].text))
            return true;
    }
    return false;
}

/* Refuses names that leave the policy without an engine: if all names are names of pools, and every
 * engine of the new set has one. */
static int check_policy(struct engine_order *o, struct err *e)
{
    if (o->change != CHANGE_ALL || o->next.n == 0 || has_policy(o, &o->next) ||
        !has_policy(o, &o->now))
        return 0;
    return err_field(e, "engines",
                     "none of these engines is the policy's: each has the name of a pool. Call the "
                     "policy's policy=KIND:URL or leave the name out; DELETE takes engines out");
}

static int read_new(struct engine_order *o, const struct json *list, struct err *e)
{
    struct err why;

    if (!json_is(list, JSON_ARRAY))
        return err_field(e, "engines", "engines is missing: a list of [NAME=]KIND:URL");
    for (size_t i = 0; o->change == CHANGE_MORE && i < o->now.n; i++)
        engine_set_add(&o->next, str_cstr(o->now.at[i].text), o->now.at[i].number);
    for (uint32_t i = 0; i < list->n; i++) {
        struct str text = json_string(&list->items[i]);

        if (check_entry(o, i, text, e))
            return -1;
        add_entry(o, text);
    }
    return engine_set_follow(&o->next, &o->now, &why) || engine_set_check(&o->next, &why)
               ? err_field(e, "engines", "%s", why.text)
               : check_policy(o, e);
}

static int read_names(struct engine_order *o, const struct json *list, struct str one,
                      struct err *e)
{
    uint32_t n = json_is(list, JSON_ARRAY) ? list->n : 0;

    if (n == 0 && !one.p)
        return err_field(e, "engines", "engines is missing: a list of names; or ?name=NAME");
    for (uint32_t i = 0; i < n + (one.p ? 1 : 0); i++) {
        struct str name = i < n ? json_string(&list->items[i]) : one;

        if (!is_any_called(o, name))
            return err_set(e, ERR_NOT_FOUND, "no engine is called \"%.*s\"",
                           (int)MIN_OF(name.len, (size_t)200), name.p);
    }
    for (size_t k = 0; k < o->now.n; k++) {
        const struct engine_entry *entry = &o->now.at[k];
        bool named = one.p && is_called(o, entry, one);

        for (uint32_t i = 0; i < n; i++)
            named = named || is_called(o, entry, json_string(&list->items[i]));
        if (!named)
            engine_set_add(&o->next, str_cstr(entry->text), entry->number);
    }
    return engine_set_follow(&o->next, &o->now, e);
}

int engine_order_read(struct engine_order *o, struct service_request *r, struct err *e)
{
    const struct json *body = control_body(r), *list = json_get(body, "engines");
    struct str one = query_get(&o->arena, exchange_query(r->x), "name");
    uint64_t edition = engine_pool_edition(o->service->calls.engines);
    double wait_s = 0;

    (void)json_to_double(json_get(body, "timeout_s"), &wait_s);
    o->until_ms = clock_ms() + (uint64_t)llround(wait_s * 1000);
    o->probe =
        !json_is(json_get(body, "probe"), JSON_BOOL) || json_is_true(json_get(body, "probe"));
    o->next.edition = MAX_OF(o->now.edition, edition) + 1;
    return o->change == CHANGE_LESS ? read_names(o, list, one, e) : read_new(o, list, e);
}

int engine_order_read_texts(struct engine_order *o, const struct engine_texts *t, struct err *e)
{
    uint64_t edition = engine_pool_edition(o->service->calls.engines);

    o->next.edition = MAX_OF(o->now.edition, edition) + 1;
    for (size_t i = 0; i < t->n; i++) {
        if (check_entry(o, (uint32_t)i, str_cstr(t->at[i]), e))
            return -1;
        add_entry(o, str_cstr(t->at[i]));
    }
    return engine_set_follow(&o->next, &o->now, e) ? -1 : engine_set_check(&o->next, e);
}
