/*
 * write_schema_value goes through a schema from the outside in: $ref, const, enum, branches, then a
 * type, which writes its own expression. Larger pieces become rules of their own.
 *
 * Members come in the order declared, and some are optional. Commas must separate those that are
 * present. So rules are made from the last member to the first, two for each member (struct rest):
 * what may follow an earlier member, with a comma, and what may follow the opening brace.
 *
 * A $ref becomes one rule, however often it is named, because recursion needs that. A rule that
 * could begin with itself would hang an engine. So edges record with which refs a ref may begin
 * (may_begin), and an edge that would close a cycle becomes "any value". Schemas come from outside,
 * so visits, refs and steps are limited. Beyond a limit the grammar is refused (beyond).
 */
#include "worker/text/parsers/schema_grammar.h"

#include "common/base/attrs.h"
#include "common/base/vec.h"
#include "worker/text/parsers/number_grammar.h"
#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/schema_literal.h"

struct schema_ref {
    const struct json *schema;
    unsigned rule;
    struct schema_edge *begins; /* refs with which its values may begin */
    unsigned seen;              /* number of the search that visited it last */
};

struct schema_edge {
    struct schema_edge *next;
    struct schema_ref *to;
};

struct schema_property {
    struct str key;
    const struct json *value;
    bool required;
};

struct properties {
    VEC(struct schema_property) list;
    struct map places; /* key -> index in list + 1 */
    VEC(struct str) required;
    const struct json *more; /* schema of additionalProperties */
    /* schemas and members visited, which are limited because allOf may branch without end */
    unsigned visits;
    bool any; /* a `properties` was present */
};

/* Limits for schemas that would cost too much. */
enum { VISITS_MAX = 8192, REFS_MAX = 1024, STEPS_MAX = 1 << 21 };

static void write_schema_value(struct schema_grammar *s, const struct json *schema, unsigned depth,
                               struct buf *x);

void schema_grammar_init(struct schema_grammar *s, struct gbnf *g, const struct json *root,
                         bool python)
{
    *s = (struct schema_grammar){.g = g, .root = root, .python = python};
    s->targets = ARENA_NEW(&s->arena, struct map);
    s->refs = ARENA_NEW(&s->arena, struct map);
    g->python = g->python || python;
}

void schema_grammar_done(struct schema_grammar *s)
{
    map_done(s->targets);
    map_done(s->refs);
    arena_done(&s->arena);
}

/* --- $ref --- */

/* Applies one step of a JSON pointer, after decoding its escapes. */
static const struct json *step_into(const struct json *v, struct str step)
{
    struct buf key = {0};
    uint64_t at;
    const struct json *found;

    for (size_t i = 0; i < step.len; i++) {
        bool escape = step.p[i] == '~' && i + 1 < step.len;

        buf_add_c(&key, !escape ? step.p[i] : step.p[i + 1] == '1' ? '/' : '~');
        i += escape;
    }
    if (json_is(v, JSON_ARRAY))
        found = str_to_u64(buf_str(&key), UINT32_MAX, &at) == 0 ? json_at(v, at) : NULL;
    else
        found = json_get_str(v, buf_str(&key));
    buf_done(&key);
    return found;
}

static const struct json *find_definition(const struct json *root, struct str ref)
{
    if (!str_starts(ref, STR("#")))
        return NULL;
    ref = str_sub(ref, 1, ref.len);
    while (root && ref.len) {
        size_t slash = str_find(ref, STR("/"), 1);

        root = step_into(root, str_sub(ref, 1, slash == SIZE_MAX ? ref.len : slash - 1));
        ref = str_sub(ref, slash, ref.len); /* becomes empty after the last step */
    }
    return root;
}

/* Returns the schema that a reference names, or NULL. Each is looked up once. */
static const struct json *target_of(const struct schema_grammar *s, struct str ref)
{
    const struct json *found = map_get(s->targets, ref);

    if (!found) {
        found = find_definition(s->root, ref);
        (void)map_set(s->targets, ref, found ? (void *)(uintptr_t)found : s->targets);
    }
    return found == (const void *)s->targets ? NULL : found;
}

const struct json *schema_deref(const struct schema_grammar *s, const struct json *schema)
{
    for (int i = 0; i < SCHEMA_DEPTH_MAX && json_is(json_get(schema, "$ref"), JSON_STRING); i++)
        schema = target_of(s, json_string(json_get(schema, "$ref")));
    return schema;
}

/* --- arrays --- */

static unsigned value_rule(struct schema_grammar *s, const struct json *schema, unsigned depth)
{
    struct buf x = {0};
    unsigned rule;

    write_schema_value(s, schema, depth, &x);
    rule = gbnf_rule(s->g, &x);
    buf_done(&x);
    return rule;
}

static void write_array(struct schema_grammar *s, const struct json *schema, unsigned depth,
                        struct buf *x)
{
    const struct json *first = json_get(schema, "prefixItems");
    const struct json *items = json_get(schema, "items");
    uint64_t min = schema_bound(schema, "minItems", 0);
    uint64_t max = schema_bound(schema, "maxItems", UINT64_MAX);
    bool ends = json_is(items, JSON_BOOL) && !json_is_true(items);
    unsigned rule;

    if (json_is(first, JSON_ARRAY) && first->n > 0) {
        buf_puts(x, "\"[\" ws ");
        for (uint32_t i = 0; i < first->n; i++) {
            buf_puts(x, i ? "ws \",\" ws " : "");
            gbnf_ref(x, value_rule(s, &first->items[i], depth));
        }
        if (!ends) {
            buf_puts(x, "( ws \",\" ws ");
            gbnf_ref(x, value_rule(s, items, depth));
            buf_puts(x, ")* ");
        }
        buf_puts(x, "ws \"]\" ");
        return;
    }
    if (min > max || (!json_is(items, JSON_OBJECT) && min == 0 && max == UINT64_MAX)) {
        schema_word(s, "array", x);
        return;
    }
    if (max == 0) {
        buf_puts(x, "\"[\" ws \"]\" ");
        return;
    }
    rule = value_rule(s, items, depth);
    buf_puts(x, "\"[\" ws ");
    buf_puts(x, min == 0 ? "( " : "");
    gbnf_ref(x, rule);
    buf_puts(x, "( ws \",\" ws ");
    gbnf_ref(x, rule);
    buf_puts(x, ")");
    schema_times(min > 1 ? min - 1 : 0, max == UINT64_MAX ? max : max - 1, x);
    buf_puts(x, min == 0 ? "ws )? \"]\" " : "ws \"]\" ");
}

/* --- objects --- */

/* Returns the property with that name; NULL: there is none. */
static struct schema_property *property_at(const struct properties *p, struct str key)
{
    size_t place = (size_t)(uintptr_t)map_get(&p->places, key);

    return place ? &p->list.at[place - 1] : NULL;
}

static void add_property(struct properties *p, const struct json_member *m)
{
    struct str key = json_string(&m->key);
    struct schema_property *at = property_at(p, key);

    if (!at) {
        at = vec_push(&p->list);
        (void)map_set(&p->places, key, (void *)(uintptr_t)p->list.n);
    }
    *at = (struct schema_property){.key = key, .value = &m->value};
}

static size_t json_size(const struct json *v)
{
    return json_is(v, JSON_OBJECT) || json_is(v, JSON_ARRAY) ? v->n : 0;
}

/* Collects the members of a schema and of all schemas that allOf joins to it. */
static void gather_properties(const struct schema_grammar *s, const struct json *schema,
                              unsigned depth, struct properties *p)
{
    const struct json *o, *all, *required;

    schema = schema_deref(s, schema);
    o = json_get(schema, "properties");
    required = json_get(schema, "required");
    p->visits += 1 + (unsigned)MIN_OF(json_size(o) + json_size(required), (size_t)VISITS_MAX);
    if (depth > SCHEMA_DEPTH_MAX || p->visits > VISITS_MAX) {
        s->g->beyond = true;
        return;
    }
    all = json_get(schema, "allOf");
    for (size_t i = 0; json_at(all, i); i++)
        gather_properties(s, json_at(all, i), depth + 1, p);
    for (uint32_t i = 0; json_is(o, JSON_OBJECT) && i < o->n; i++)
        add_property(p, &o->members[i]);
    p->any = p->any || json_is(o, JSON_OBJECT);
    for (size_t i = 0; json_at(required, i); i++)
        if (json_is(json_at(required, i), JSON_STRING))
            *vec_push(&p->required) = json_string(json_at(required, i));
    if (json_get(schema, "additionalProperties"))
        p->more = json_get(schema, "additionalProperties");
}

static void properties_of(const struct schema_grammar *s, const struct json *schema,
                          struct properties *p)
{
    *p = (struct properties){0};
    gather_properties(s, schema, 0, p);
    for (size_t i = 0; i < p->required.n; i++) {
        struct schema_property *at = property_at(p, p->required.at[i]);

        if (at)
            at->required = true;
    }
}

static void properties_done(struct properties *p)
{
    map_done(&p->places);
    vec_done(&p->list);
    vec_done(&p->required);
}

void schema_each_property(const struct schema_grammar *s, const struct json *schema,
                          void (*member)(void *ctx, struct str key, const struct json *value,
                                         bool required),
                          void *ctx)
{
    struct properties p;

    properties_of(s, schema, &p);
    for (size_t i = 0; i < p.list.n; i++)
        member(ctx, p.list.at[i].key, p.list.at[i].value, p.list.at[i].required);
    properties_done(&p);
}

/* Rules for the remaining members: if a member precedes them, and if none does. */
struct rest {
    unsigned behind, begin;
};

static struct rest follow_member(struct schema_grammar *s, unsigned pair, bool required,
                                 struct rest next)
{
    struct buf x = {0};
    struct rest r;

    buf_puts(&x, "ws \",\" ws ");
    gbnf_ref(&x, pair);
    gbnf_ref(&x, next.behind);
    if (!required) {
        buf_puts(&x, "| ");
        gbnf_ref(&x, next.behind);
    }
    r.behind = gbnf_rule(s->g, &x);
    gbnf_ref(&x, pair);
    gbnf_ref(&x, next.behind);
    if (!required) {
        buf_puts(&x, "| ");
        gbnf_ref(&x, next.begin);
    }
    r.begin = gbnf_rule(s->g, &x);
    buf_done(&x);
    return r;
}

/* Writes what may follow the declared members: further ones of any name, or nothing. */
static struct rest follow_last(struct schema_grammar *s, const struct json *more, bool open,
                               unsigned depth)
{
    struct buf x = {0};
    struct rest r;
    unsigned pair = 0;

    if (open) {
        schema_word(s, "string", &x);
        buf_puts(&x, "ws \":\" ws ");
        write_schema_value(s, more, depth, &x);
        pair = gbnf_rule(s->g, &x);
        buf_puts(&x, "( ws \",\" ws ");
        gbnf_ref(&x, pair);
        buf_puts(&x, ")*");
    } else {
        buf_puts(&x, "\"\"");
    }
    r.behind = gbnf_rule(s->g, &x);
    if (open) {
        buf_puts(&x, "( ");
        gbnf_ref(&x, pair);
        gbnf_ref(&x, r.behind);
        buf_puts(&x, ")?");
    } else {
        buf_puts(&x, "\"\"");
    }
    r.begin = gbnf_rule(s->g, &x);
    buf_done(&x);
    return r;
}

static void write_members(struct schema_grammar *s, const struct properties *p, bool open,
                          unsigned depth, void (*key_of)(struct buf *, struct str), struct buf *x)
{
    struct rest next = follow_last(s, p->more, open, depth);
    struct buf pair = {0};

    for (size_t i = p->list.n; i-- > 0;) {
        key_of(&pair, p->list.at[i].key);
        write_schema_value(s, p->list.at[i].value, depth, &pair);
        next = follow_member(s, gbnf_rule(s->g, &pair), p->list.at[i].required, next);
    }
    gbnf_ref(x, next.begin);
    buf_done(&pair);
}

void schema_members(struct schema_grammar *s, const struct json *schema,
                    void (*key_of)(struct buf *expr, struct str key), struct buf *expr)
{
    struct properties p;

    properties_of(s, schema, &p);
    write_members(s, &p, false, 1, key_of, expr);
    properties_done(&p);
}

static void json_key(struct buf *x, struct str key)
{
    struct buf quoted = {0};

    buf_add_c(&quoted, '"');
    value_escape(&quoted, key);
    buf_add_c(&quoted, '"');
    gbnf_lit(x, buf_str(&quoted));
    buf_puts(x, "ws \":\" ws ");
    buf_done(&quoted);
}

static void python_key(struct buf *x, struct str key)
{
    const struct schema_grammar s = {.python = true};

    buf_puts(x, "( ");
    schema_text(&s, key, x);
    buf_puts(x, ") ws \":\" ws ");
}

static void bare_key(struct buf *x, struct str key)
{
    gbnf_lit(x, key);
    buf_puts(x, "\":\" ws ");
}

static void write_object(struct schema_grammar *s, const struct json *schema, unsigned depth,
                         struct buf *x)
{
    struct properties p;
    bool open;

    properties_of(s, schema, &p);
    open = p.more ? p.more->kind == JSON_OBJECT || json_is_true(p.more) : !p.any;
    if (p.list.n == 0 && open && !json_is(p.more, JSON_OBJECT)) {
        schema_word(s, "object", x);
    } else {
        buf_puts(x, "\"{\" ws ");
        write_members(s, &p, open, depth,
                      s->python  ? python_key
                      : s->quote ? bare_key
                                 : json_key,
                      x);
        buf_puts(x, "ws \"}\" ");
    }
    properties_done(&p);
}

/* --- any schema --- */

static bool reaches_ref(struct schema_grammar *s, struct schema_ref *from,
                        const struct schema_ref *to)
{
    if (from == to)
        return true;
    if (from->seen == s->searches)
        return false;
    from->seen = s->searches;
    for (const struct schema_edge *e = from->begins; e; e = e->next, s->steps++)
        if (reaches_ref(s, e->to, to))
            return true;
    return false;
}

static bool begins_with_ref(struct schema_grammar *s, const struct schema_ref *with)
{
    for (const struct schema_edge *e = s->current->begins; e; e = e->next, s->steps++)
        if (e->to == with)
            return true;
    return false;
}

/* Records that the values of the present ref may begin like those of `to`. Returns false if that
 * would make a rule that begins with itself, which no engine can follow. */
static bool may_begin(struct schema_grammar *s, struct schema_ref *to)
{
    struct schema_edge *e;

    if (!s->current || begins_with_ref(s, to))
        return true;
    s->searches++;
    if (s->steps > STEPS_MAX)
        s->g->beyond = true;
    if (s->g->beyond || reaches_ref(s, to, s->current))
        return false;
    e = ARENA_NEW(&s->arena, struct schema_edge);
    *e = (struct schema_edge){.next = s->current->begins, .to = to};
    s->current->begins = e;
    return true;
}

static struct schema_ref *ref_to(struct schema_grammar *s, const struct json *to, bool *fresh)
{
    struct schema_ref *r = map_get(s->refs, str_of((const char *)&to, sizeof(to)));

    *fresh = !r;
    if (r)
        return r;
    s->g->beyond = s->g->beyond || s->n_refs++ == REFS_MAX;
    r = ARENA_NEW(&s->arena, struct schema_ref);
    *r = (struct schema_ref){.schema = to, .rule = gbnf_reserve(s->g)};
    (void)map_set(s->refs, str_of((const char *)&r->schema, sizeof(r->schema)), r);
    return r;
}

static void write_ref(struct schema_grammar *s, const struct json *schema, unsigned depth,
                      struct buf *x)
{
    const struct json *to = schema_deref(s, schema);
    struct schema_ref *was = s->current, *r;
    struct buf rule = {0};
    bool fresh;

    if (!json_is(to, JSON_OBJECT) || json_get(to, "$ref")) {
        schema_word(s, "value", x);
        return;
    }
    r = ref_to(s, to, &fresh);
    if (!may_begin(s, r)) {
        schema_word(s, "value", x);
        return;
    }
    if (fresh) {
        s->current = r;
        write_schema_value(s, to, depth, &rule);
        s->current = was;
        gbnf_define(s->g, r->rule, &rule);
        buf_done(&rule);
    }
    gbnf_ref(x, r->rule);
}

/* Returns the type that a schema without `type` implies. */
static const char *implied_type(const struct json *schema)
{
    static const char *const words[][2] = {
        {"properties", "object"},
        {"additionalProperties", "object"},
        {"required", "object"},
        {"allOf", "object"},
        {"items", "array"},
        {"prefixItems", "array"},
        {"minLength", "string"},
        {"maxLength", "string"},
        {"pattern", "string"},
        {"format", "string"},
        {"minimum", "number"},
        {"maximum", "number"},
        {"exclusiveMinimum", "number"},
        {"exclusiveMaximum", "number"},
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (json_get(schema, words[i][0]))
            return words[i][1];
    return "any";
}

static void write_type(struct schema_grammar *s, const struct json *schema, struct str type,
                       unsigned depth, struct buf *x)
{
    struct schema_ref *was = s->current;

    if (str_eq_c(type, "object") || str_eq_c(type, "array")) {
        s->current = NULL; /* everything inside follows a bracket */
        if (str_eq_c(type, "object"))
            write_object(s, schema, depth, x);
        else
            write_array(s, schema, depth, x);
        s->current = was;
    } else if (str_eq_c(type, "string")) {
        schema_string(s, schema, x);
    } else if (str_eq_c(type, "integer") || str_eq_c(type, "number")) {
        number_grammar(schema, str_eq_c(type, "integer"), x);
    } else if (str_eq_c(type, "boolean") || str_eq_c(type, "null")) {
        schema_word(s, str_eq_c(type, "null") ? "null" : "boolean", x);
    } else {
        schema_word(s, "value", x);
    }
}

static void write_union(struct schema_grammar *s, const struct json *list, unsigned depth,
                        struct buf *x)
{
    buf_puts(x, "( ");
    for (uint32_t i = 0; i < list->n; i++) {
        buf_puts(x, i ? "| " : "");
        write_schema_value(s, &list->items[i], depth, x);
    }
    buf_puts(x, ") ");
}

static void write_types(struct schema_grammar *s, const struct json *schema, unsigned depth,
                        struct buf *x)
{
    const struct json *type = json_get(schema, "type");

    if (!json_is(type, JSON_ARRAY) || type->n == 0) {
        write_type(s, schema,
                   json_is(type, JSON_STRING) ? json_string(type) : str_cstr(implied_type(schema)),
                   depth, x);
        return;
    }
    buf_puts(x, "( ");
    for (uint32_t i = 0; i < type->n; i++) {
        buf_puts(x, i ? "| " : "");
        write_type(s, schema, json_string(&type->items[i]), depth, x);
    }
    buf_puts(x, ") ");
}

/* Returns the branches of anyOf / oneOf; NULL if the schema has members of its own, which the
 * branches would only narrow. */
static const struct json *branches_of(const struct json *schema)
{
    const struct json *any = json_get(schema, "anyOf");

    if (!any)
        any = json_get(schema, "oneOf");
    return json_is(any, JSON_ARRAY) && any->n > 0 && !json_get(schema, "properties") ? any : NULL;
}

static void write_schema_value(struct schema_grammar *s, const struct json *schema, unsigned depth,
                               struct buf *x)
{
    const struct json *all = json_get(schema, "allOf");
    const struct json *values = json_get(schema, "enum");

    if (!json_is(schema, JSON_OBJECT) || depth > SCHEMA_DEPTH_MAX || gbnf_too_big(s->g))
        schema_word(s, "value", x);
    else if (json_get(schema, "$ref"))
        write_ref(s, schema, depth + 1, x);
    else if (json_get(schema, "const"))
        schema_const(s, json_get(schema, "const"), x);
    else if (json_is(values, JSON_ARRAY) && values->n > 0)
        schema_enum(s, values, x);
    else if (branches_of(schema))
        write_union(s, branches_of(schema), depth + 1, x);
    else if (json_is(all, JSON_ARRAY) && all->n == 1 && !json_get(schema, "properties"))
        write_schema_value(s, &all->items[0], depth + 1, x);
    else
        write_types(s, schema, depth + 1, x);
}

void schema_value(struct schema_grammar *s, const struct json *schema, struct buf *expr)
{
    write_schema_value(s, schema, 0, expr);
}
