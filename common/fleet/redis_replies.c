/* Readers of replies (redis_replies.h). Missing fields are zero; what would mislead is refused. */
#include "common/fleet/redis_replies.h"

#include "common/base/arena.h"
#include "common/codec/hex.h"
#include "common/fleet/resp.h"

/* Reads a verdict by its name. False: there is none. */
static bool find_verdict(struct str name, enum store_verdict *ret)
{
    for (unsigned v = STORE_DONE; v <= STORE_OVERTAKEN; v++) {
        *ret = (enum store_verdict)v;
        if (str_eq_c(name, store_verdict_name(*ret)))
            return true;
    }
    return false;
}

bool redis_read_claim(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    (void)arena;
    a->owner = resp_text(r, 1);
    a->epoch = resp_number(r, 2, 0);
    a->beat = resp_number(r, 3, 0);
    a->whole = str_eq_c(resp_text(r, 4), "1");
    a->base = resp_number(r, 5, 0);
    a->version = resp_number(r, 6, 0);
    a->n_logs = resp_number(r, 7, 0);
    a->doubt_ms = resp_number(r, 8, 0);
    return resp_has_items(r, 9);
}

/* One element of the refusals: number, verdict, next, base. */
static bool read_refusal(const struct resp *r, struct store_refusal *ret)
{
    *ret = (struct store_refusal){.i = (size_t)resp_number(r, 0, 0),
                                  .next = resp_number(r, 2, 0),
                                  .base = resp_number(r, 3, 0)};
    return resp_has_items(r, 4) && find_verdict(resp_text(r, 1), &ret->verdict);
}

bool redis_read_refusals(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    struct store_refusal *at;

    if (a->verdict == STORE_FENCED) {
        a->base = resp_number(r, 1, 0);
        return true;
    }
    if (!resp_has_items(r, 2) || !resp_has_items(&r->items[1], 0))
        return false;
    a->edition = resp_number(r, 2, 0);
    a->n_refused = r->items[1].n;
    a->refused = at = arena_calloc(arena, a->n_refused, sizeof(*at));
    for (size_t i = 0; i < a->n_refused; i++)
        if (!read_refusal(&r->items[1].items[i], &at[i]))
            return false;
    return true;
}

/* Reads the hexadecimal number of a server. Returns 0 if it is none. */
static uint64_t read_server(struct str text)
{
    uint64_t number = 0;

    for (size_t i = 0; i < text.len; i++) {
        int digit = hex_value(text.p[i]);

        if (digit < 0)
            return 0;
        number = number << 4 | (unsigned)digit;
    }
    return number;
}

bool redis_read_renewal(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    const struct resp *list = resp_has_items(r, 5) ? &r->items[3] : NULL;
    struct store_beat *at;

    if (!list || !resp_has_items(list, 0) || list->n % 2 != 0 || !redis_read_refusals(arena, r, a))
        return false;
    a->server = read_server(resp_text(r, 4));
    a->n_beats = list->n / 2;
    a->beats = at = arena_calloc(arena, a->n_beats, sizeof(*at));
    for (size_t i = 0; i < a->n_beats; i++)
        at[i] = (struct store_beat){resp_text(list, 2 * i), resp_number(list, 2 * i + 1, 0)};
    return true;
}

bool redis_read_base(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    (void)arena;
    a->base = resp_number(r, 1, 0);
    return true;
}

bool redis_read_texts(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    struct str *at = arena_calloc(arena, r->n, sizeof(*at));

    a->texts = at;
    a->n_texts = r->n;
    for (size_t i = 0; i < r->n; i++) {
        at[i] = r->items[i].text;
        if (!at[i].p)
            return false;
    }
    return r->kind == RESP_ARRAY;
}

bool redis_read_lengths(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    const struct resp *list = resp_has_items(r, 3) ? &r->items[1] : NULL;
    struct store_log *logs;
    struct str *ids;

    if (!list || !resp_has_items(list, 0) || list->n % 4 != 0)
        return false;
    a->server = read_server(resp_text(r, 2));
    a->n_texts = list->n / 4;
    a->texts = ids = arena_calloc(arena, a->n_texts, sizeof(*ids));
    a->logs = logs = arena_calloc(arena, a->n_texts, sizeof(*logs));
    for (size_t i = 0; i < a->n_texts; i++) {
        ids[i] = resp_text(list, 4 * i);
        logs[i].first = resp_number(list, 4 * i + 1, 0);
        logs[i].next = resp_number(list, 4 * i + 2, 0);
        logs[i].complete = resp_number(list, 4 * i + 3, 0) == 1;
        if (!ids[i].p || logs[i].next < logs[i].first)
            return false;
    }
    return true;
}

bool redis_read_log(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    a->first = resp_number(r, 1, 0);
    a->next = resp_number(r, 2, 0);
    return resp_has_items(r, 4) && redis_read_texts(arena, &r->items[3], a) &&
           (a->n_texts == 0 || a->first + a->n_texts <= a->next);
}

bool redis_read_edition(struct arena *arena, const struct resp *r, struct store_answer *a)
{
    (void)arena;
    a->value = resp_text(r, 1);
    a->edition = resp_number(r, 2, 0);
    return true;
}

static const struct {
    const char *prefix;
    bool breaks; /* this connection serves nothing: the next one may reach another server */
    enum store_verdict verdict;
} error_kinds[] = {
    {"OOM ", false, STORE_FULL},       {"NOSCRIPT ", true, STORE_LOST},
    {"READONLY ", true, STORE_LOST},   {"LOADING ", true, STORE_LOST},
    {"MASTERDOWN ", true, STORE_LOST}, {"NOAUTH ", true, STORE_LOST},
    {"BUSY ", true, STORE_LOST},       {"", false, STORE_FAILED},
};

bool redis_read_error(struct arena *arena, const struct resp *reply, struct store_answer *a)
{
    size_t kind = 0;

    while (!str_starts(reply->text, str_cstr(error_kinds[kind].prefix)))
        kind++;
    a->verdict = error_kinds[kind].verdict;
    a->why = arena_cstr(arena, str_sub(reply->text, 0, REDIS_WHY_MAX));
    return error_kinds[kind].breaks;
}

bool redis_read_verdict(const struct resp *reply, struct store_answer *a)
{
    return reply->kind == RESP_ARRAY && find_verdict(resp_text(reply, 0), &a->verdict);
}

/* A field of a hash that came as names and values. */
static struct str find_field(const struct resp *hash, const char *name)
{
    for (size_t i = 0; i + 1 < hash->n; i += 2)
        if (str_eq_c(resp_text(hash, i), name))
            return resp_text(hash, i + 1);
    return STR("");
}

static uint64_t find_number(const struct resp *hash, const char *name)
{
    uint64_t value = 0;

    (void)str_to_u64(find_field(hash, name), UINT64_MAX, &value);
    return value;
}

/* "place:7" for "place:{7}". */
static struct str strip_braces(struct arena *a, struct str name)
{
    size_t open = str_find(name, STR("{"), 0);

    if (open == SIZE_MAX || !str_ends(name, STR("}")))
        return name;
    return arena_printf(a, "%.*s%.*s", (int)open, name.p, (int)(name.len - open - 2),
                        name.p + open + 1);
}

void redis_read_entry(struct arena *arena, const struct resp *item, struct store_entry *ret)
{
    static const struct resp no_hash = {.kind = RESP_ARRAY};
    const struct resp *hash = resp_has_items(item, 2) ? &item->items[1] : &no_hash;

    *ret = (struct store_entry){
        .key = strip_braces(arena, resp_text(item, 0)),
        .value = find_field(hash, "value"),
        .edition = find_number(hash, "edition"),
        .beat = find_number(hash, "beat"),
        .owner = find_field(hash, "owner"),
        .epoch = find_number(hash, "epoch"),
        .base = find_number(hash, "base"),
        .before = find_number(hash, "before"),
        .since = find_number(hash, "since"),
        .version = find_number(hash, "version"),
        .whole = str_eq_c(find_field(hash, "whole"), "1"),
        .taken = str_eq_c(find_field(hash, "taken"), "1"),
    };
    ret->vacant = ret->epoch > 0 && find_number(hash, "vacant") == ret->epoch;
    ret->doubt_ms = find_number(hash, "doubt");
}
