/* Entries that nodes write about themselves (node_entry.h): JSON in both directions. */
#include "keeper/node_entry.h"

#include <stdio.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/codec/json.h"

enum { LOAD_MAX = 1000000 };

void node_entry_write(const struct node_entry *n, struct buf *out)
{
    struct json_out o = json_out_to(out);
    char url[FLEET_ADDRESS_MAX + 8];

    (void)snprintf(url, sizeof(url), "http://%s", n->address);
    json_out_obj(&o);
    json_out_member_cstr(&o, "url", url);
    json_out_member_cstr(&o, "address", n->address);
    json_out_member_i64(&o, "block", n->block);
    json_out_member_cstr(&o, "instance", n->instance);
    json_out_member_cstr(&o, "state", n->draining ? "draining" : "up");
    json_out_member_i64(&o, "load", n->load);
    json_out_member_i64(&o, "sessions", n->sessions);
    json_out_member_i64(&o, "calls", n->calls);
    json_out_member_i64(&o, "capacity", n->capacity);
    json_out_member_cstr(&o, "build", n->build);
    json_out_key(&o, "records");
    json_out_arr(&o);
    json_out_i64(&o, n->oldest_record);
    json_out_i64(&o, n->newest_record);
    json_out_end_arr(&o);
    json_out_member_cstr(&o, "tokenizer", n->tokenizer);
    json_out_member_i64(&o, "edition", (int64_t)n->edition);
    json_out_member_i64(&o, "lease_ms", (int64_t)n->lease_ms);
    json_out_end_obj(&o);
}

/* Copies a string of 1 to size - 1 bytes without a NUL. */
static bool read_text(const struct json *v, char *ret, size_t size)
{
    struct str text = json_string(v);

    if (text.len == 0 || text.len >= size || memchr(text.p, 0, text.len))
        return false;
    memcpy(ret, text.p, text.len);
    ret[text.len] = 0;
    return true;
}

static bool read_number(const struct json *v, uint64_t max, uint64_t *ret)
{
    int64_t value;

    if (json_to_i64(v, &value) || value < 0 || (uint64_t)value > max)
        return false;
    *ret = (uint64_t)value;
    return true;
}

static bool read_u32(const struct json *v, uint32_t max, uint32_t *ret)
{
    uint64_t value = 0;
    bool good = read_number(v, max, &value);

    *ret = (uint32_t)value;
    return good;
}

static bool read_members(const struct json *v, struct node_entry *n)
{
    const struct json *records = json_get(v, "records");

    /* a node of an older build says nothing about these */
    (void)read_u32(json_get(v, "sessions"), UINT32_MAX, &n->sessions);
    (void)read_u32(json_get(v, "calls"), UINT32_MAX, &n->calls);
    (void)read_u32(json_get(v, "capacity"), UINT32_MAX, &n->capacity);
    n->draining = str_eq_c(json_string(json_get(v, "state")), "draining");
    return read_text(json_get(v, "address"), n->address, sizeof(n->address)) &&
           read_text(json_get(v, "instance"), n->instance, sizeof(n->instance)) &&
           read_text(json_get(v, "build"), n->build, sizeof(n->build)) &&
           read_text(json_get(v, "tokenizer"), n->tokenizer, sizeof(n->tokenizer)) &&
           read_u32(json_get(v, "block"), FLEET_BLOCKS - 1, &n->block) &&
           read_u32(json_get(v, "load"), LOAD_MAX, &n->load) &&
           read_u32(json_at(records, 0), UINT32_MAX, &n->oldest_record) &&
           read_u32(json_at(records, 1), UINT32_MAX, &n->newest_record) &&
           read_number(json_get(v, "edition"), INT64_MAX, &n->edition);
}

int node_entry_read(struct str text, struct node_entry *ret)
{
    const struct json *v;
    struct arena a = {0};
    struct err e;
    bool good;

    *ret = (struct node_entry){0};
    good = json_parse(&a, text, &v, &e) == 0 && read_members(v, ret);
    arena_done(&a);
    return good ? 0 : -1;
}

void fleet_entry_make(const struct keys *k, struct fleet_entry *ret)
{
    *ret = (struct fleet_entry){.layout = FLEET_LAYOUT};
    while (ret->n_secrets < ENTRY_SECRETS_MAX &&
           keys_print_secret(k, ret->n_secrets, ret->secrets[ret->n_secrets]))
        ret->n_secrets++;
    keys_print_admins(k, ret->admins);
}

void fleet_entry_write(const struct fleet_entry *f, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_i64(&o, "layout", (int64_t)f->layout);
    json_out_key(&o, "secret");
    json_out_arr(&o);
    for (size_t i = 0; i < f->n_secrets; i++)
        json_out_cstr(&o, f->secrets[i]);
    json_out_end_arr(&o);
    json_out_member_cstr(&o, "admin", f->admins);
    json_out_end_obj(&o);
}

int fleet_entry_read(struct str text, struct fleet_entry *ret)
{
    const struct json *v = NULL, *secrets;
    struct arena a = {0};
    struct err e;
    bool good;

    *ret = (struct fleet_entry){0};
    good = json_parse(&a, text, &v, &e) == 0;
    secrets = json_get(v, "secret");
    good = good && read_number(json_get(v, "layout"), INT64_MAX, &ret->layout) &&
           read_text(json_get(v, "admin"), ret->admins, sizeof(ret->admins));
    for (size_t i = 0; good && i < ENTRY_SECRETS_MAX && json_at(secrets, i); i++)
        good =
            read_text(json_at(secrets, i), ret->secrets[ret->n_secrets++], sizeof(ret->secrets[0]));
    arena_done(&a);
    return good && ret->n_secrets > 0 ? 0 : -1;
}

bool fleet_entry_is_same(const struct fleet_entry *a, const struct fleet_entry *b)
{
    bool same =
        a->layout == b->layout && a->n_secrets == b->n_secrets && strcmp(a->admins, b->admins) == 0;

    for (size_t i = 0; same && i < a->n_secrets; i++)
        same = strcmp(a->secrets[i], b->secrets[i]) == 0;
    return same;
}

static bool has_secret(const struct fleet_entry *f, const char *print)
{
    bool found = false;

    for (size_t i = 0; i < f->n_secrets; i++)
        found |= strcmp(f->secrets[i], print) == 0;
    return found;
}

const char *fleet_entry_fault(const struct fleet_entry *mine, const struct fleet_entry *stored)
{
    if (stored->layout != mine->layout)
        return "the store has another layout: run the same build on all nodes";
    if (!has_secret(stored, mine->secrets[0]) && !has_secret(mine, stored->secrets[0]))
        return "the fleet has another key secret: give all nodes the same --key-secret-file";
    if (strcmp(mine->secrets[0], stored->secrets[0]) == 0 &&
        strcmp(mine->admins, stored->admins) != 0)
        return "the fleet has other admin keys: give all nodes the same --admin-key-file";
    return NULL;
}
