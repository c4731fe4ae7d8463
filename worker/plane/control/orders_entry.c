/* Form and writing of the orders of a fleet (orders_entry.h). */
#include "worker/plane/control/orders_entry.h"

#include "common/codec/json.h"

static const char *const names[FLEET_ORDER_KINDS] = {
    [FLEET_VERSION] = "version",
    [FLEET_ADAPTERS] = "adapters",
    [FLEET_PAUSED] = "paused",
    [FLEET_ENGINES] = "engines",
};

static bool is_adapter(const struct json *v)
{
    return json_string(json_get(v, "name")).len > 0 && json_string(json_get(v, "version")).len > 0;
}

static bool is_engine(const struct json *v)
{
    return json_string(v).len > 0;
}

static bool is_list(const struct json *v, bool (*is_item)(const struct json *v))
{
    bool good = json_is(v, JSON_ARRAY);

    for (uint32_t i = 0; good && i < v->n; i++)
        good = is_item(&v->items[i]);
    return good;
}

static bool has_form(enum fleet_order kind, const struct json *value)
{
    switch (kind) {
    case FLEET_VERSION:
        return json_is(value, JSON_STRING);
    case FLEET_ADAPTERS:
        return is_list(value, is_adapter);
    case FLEET_PAUSED:
        return json_is(value, JSON_BOOL);
    default:
        return is_list(value, is_engine);
    }
}

static int read_member(struct orders_entry *o, enum fleet_order kind)
{
    const struct json *member = json_get(o->all, names[kind]);
    int64_t edition;

    if (!member)
        return 0;
    o->values[kind] = json_get(member, "value");
    if (json_to_i64(json_get(member, "edition"), &edition) || edition < 0 ||
        !has_form(kind, o->values[kind]))
        return -1;
    o->editions[kind] = (uint64_t)edition;
    return 0;
}

int orders_entry_read(struct arena *a, struct str text, struct orders_entry *ret)
{
    struct err e;
    int rc = 0;

    *ret = (struct orders_entry){0};
    if (text.len == 0)
        return 0;
    if (json_parse(a, text, &ret->all, &e) || !json_is(ret->all, JSON_OBJECT))
        return -1;
    for (unsigned kind = 0; rc == 0 && kind < FLEET_ORDER_KINDS; kind++)
        rc = read_member(ret, (enum fleet_order)kind);
    return rc;
}

void orders_entry_write(const struct orders_entry *o, enum fleet_order kind, struct str value,
                        uint64_t edition, struct buf *out)
{
    struct json_out w = json_out_to(out);

    json_out_obj(&w);
    for (uint32_t i = 0; o->all && i < o->all->n; i++) {
        const struct json_member *m = &o->all->members[i];

        if (!str_eq_c(json_string(&m->key), names[kind]))
            json_out_member_of(&w, json_string(&m->key), &m->value);
    }
    json_out_member_obj(&w, names[kind]);
    json_out_member_i64(&w, "edition", (int64_t)edition);
    json_out_member_raw(&w, "value", value);
    json_out_end_obj(&w);
    json_out_end_obj(&w);
}
