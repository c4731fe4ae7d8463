/*
 * The grammar is parsed into a tree: a rule's body is a choice of sequences of items. Then each
 * rule gets the cost of its shortest sentence. All costs begin at ENDLESS, and passes over all
 * rules lower them until nothing changes. Entering a rule costs 1, so the cheapest path has no
 * cycle, and write_sentence(), which follows it, ends. Optional items are left out, because their
 * least number of times is 0.
 */
#include "worker/text/parsers/gbnf_sample.h"

#include "common/base/arena.h"
#include "common/base/check.h"
#include "common/base/map.h"
#include "common/base/utf8.h"

enum { PASSES_MAX = 200, NESTING_MAX = 500, ENDLESS = 1 << 30 };

enum grammar_symbol_kind { LITERAL, RULE, SEQUENCE, CHOICE };

/* An expression. `next` is the next one in the same sequence or choice. */
struct grammar_symbol {
    enum grammar_symbol_kind kind;
    struct grammar_symbol *next;
    struct grammar_symbol *parts;
    struct str text; /* text of a LITERAL */
    struct rule *rule;
    unsigned min; /* least number of repetitions */
};

struct rule {
    struct grammar_symbol *body;
    unsigned cost;
    struct rule *next;
};

struct grammar_reading {
    struct arena arena;
    struct map names; /* name -> struct rule */
    struct rule *rules;
    const char *p, *end;
    unsigned depth;
};

static struct grammar_symbol *read_sample_choice(struct grammar_reading *r);

/* --- reading --- */

static void skip_layout(struct grammar_reading *r)
{
    while (r->p < r->end && (strchr(" \t\r\n", *r->p) || *r->p == '#')) {
        if (*r->p == '#')
            while (r->p < r->end && *r->p != '\n')
                r->p++;
        else
            r->p++;
    }
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

static struct str read_rule_name(struct grammar_reading *r)
{
    const char *from = r->p;

    while (r->p < r->end && name_char(*r->p))
        r->p++;
    return str_of(from, (size_t)(r->p - from));
}

static bool eat_mark(struct grammar_reading *r, const char *what)
{
    size_t n = strlen(what);

    if ((size_t)(r->end - r->p) < n || memcmp(r->p, what, n) != 0)
        return false;
    r->p += n;
    return true;
}

/* Reports whether the name begins a definition, which ends the rule before it. */
static bool at_definition(struct grammar_reading *r)
{
    const char *was = r->p;
    bool is = read_rule_name(r).len > 0;

    skip_layout(r);
    is = is && eat_mark(r, "::=");
    r->p = was;
    return is;
}

static struct rule *rule_named(struct grammar_reading *r, struct str name)
{
    struct rule *rule = map_get(&r->names, name);

    if (rule)
        return rule;
    rule = ARENA_NEW(&r->arena, struct rule);
    *rule = (struct rule){.cost = ENDLESS, .next = r->rules};
    r->rules = rule;
    (void)map_set(&r->names, name, rule);
    return rule;
}

static struct grammar_symbol *node_new(struct grammar_reading *r, enum grammar_symbol_kind kind)
{
    struct grammar_symbol *n = ARENA_NEW(&r->arena, struct grammar_symbol);

    n->kind = kind;
    n->min = 1;
    return n;
}

static uint32_t read_code_point(struct grammar_reading *r, unsigned digits)
{
    uint32_t v = 0;

    for (; digits > 0 && r->p < r->end; digits--, r->p++) {
        char c = *r->p;

        if (c >= '0' && c <= '9')
            v = v * 16 + (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v * 16 + (uint32_t)((c | 32) - 'a' + 10);
        else
            break;
    }
    return v;
}

/* Reads one character of a literal or class, without its escape. */
static uint32_t read_char(struct grammar_reading *r)
{
    static const char from[] = "nrt0", to[] = "\n\r\t";
    uint32_t c = (unsigned char)*r->p++;
    size_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

    if (c == '\\' && r->p < r->end) {
        char kind = *r->p++;
        const char *known = kind ? strchr(from, kind) : NULL;

        if (kind == 'x' || kind == 'u' || kind == 'U')
            return read_code_point(r, kind == 'x' ? 2 : kind == 'u' ? 4 : 8);
        return known ? (unsigned char)to[known - from] : (unsigned char)kind;
    }
    c &= more ? 0x3fu >> more : 0x7fu;
    for (; more > 0 && r->p < r->end; more--)
        c = c << 6 | ((unsigned char)*r->p++ & 0x3f);
    return c;
}

static void put_char(struct buf *out, uint32_t c)
{
    char bytes[4];

    buf_add(out, bytes, utf8_encode(bytes, c <= 0x10ffff ? c : '?'));
}

static struct grammar_symbol *add_literal(struct grammar_reading *r, struct buf *text)
{
    struct grammar_symbol *n = node_new(r, LITERAL);

    n->text = arena_str(&r->arena, buf_str(text));
    buf_done(text);
    return n;
}

static struct grammar_symbol *read_literal(struct grammar_reading *r)
{
    struct buf text = {0};

    while (r->p < r->end && *r->p != '"')
        put_char(&text, read_char(r));
    if (!eat_mark(r, "\"")) {
        buf_done(&text);
        return NULL;
    }
    return add_literal(r, &text);
}

/* Reports whether the class at r->p has c. Moves after its bracket. */
static bool class_has(struct grammar_reading *r, uint32_t c)
{
    bool has = false;

    while (r->p < r->end && *r->p != ']') {
        uint32_t from = read_char(r), to = from;

        if (r->end - r->p > 1 && r->p[0] == '-' && r->p[1] != ']') {
            r->p++;
            to = read_char(r);
        }
        has = has || (c >= from && c <= to);
    }
    return has;
}

/* Returns a character of the class: a plain one if the class is negated, else its first. */
static struct grammar_symbol *read_class(struct grammar_reading *r)
{
    static const char plain[] = "ax0 .-_/\n";
    bool negated = eat_mark(r, "^");
    const char *from = r->p;
    uint32_t c = negated || from == r->end ? 0 : read_char(r);
    struct buf text = {0};

    for (size_t i = 0; negated && !c && plain[i]; i++) {
        r->p = from;
        c = class_has(r, (unsigned char)plain[i]) ? 0 : (unsigned char)plain[i];
    }
    r->p = from;
    (void)class_has(r, 0);
    if (!eat_mark(r, "]") || !c)
        return NULL;
    put_char(&text, c);
    return add_literal(r, &text);
}

static unsigned read_repeat(struct grammar_reading *r)
{
    unsigned n = 0;

    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        n = n < GBNF_SAMPLE_MAX ? n * 10 + (unsigned)(*r->p - '0') : n;
    return n;
}

static bool read_times(struct grammar_reading *r, struct grammar_symbol *n)
{
    if (eat_mark(r, "*") || eat_mark(r, "?")) {
        n->min = 0;
    } else if (eat_mark(r, "{")) {
        n->min = read_repeat(r);
        if (eat_mark(r, ","))
            (void)read_repeat(r);
        return eat_mark(r, "}");
    } else {
        (void)eat_mark(r, "+");
    }
    return true;
}

static struct grammar_symbol *read_symbol(struct grammar_reading *r)
{
    struct grammar_symbol *n;

    if (eat_mark(r, "\""))
        return read_literal(r);
    if (eat_mark(r, "["))
        return read_class(r);
    if (eat_mark(r, "(")) {
        n = read_sample_choice(r);
        return n && eat_mark(r, ")") ? n : NULL;
    }
    if (r->p == r->end || !name_char(*r->p))
        return NULL;
    n = node_new(r, RULE);
    n->rule = rule_named(r, read_rule_name(r));
    return n;
}

static struct grammar_symbol *read_symbol_row(struct grammar_reading *r)
{
    struct grammar_symbol *seq = node_new(r, SEQUENCE), **last = &seq->parts;

    for (;;) {
        struct grammar_symbol *n;

        skip_layout(r);
        if (r->p == r->end || *r->p == '|' || *r->p == ')' || at_definition(r))
            return seq;
        n = read_symbol(r);
        if (!n || !read_times(r, n))
            return NULL;
        *last = node_new(r, SEQUENCE); /* an item may be repeated, so it needs a node of its own */
        (*last)->parts = n;
        (*last)->min = n->min;
        n->min = 1;
        last = &(*last)->next;
    }
}

static struct grammar_symbol *read_sample_choice(struct grammar_reading *r)
{
    struct grammar_symbol *choice = node_new(r, CHOICE), **last = &choice->parts;

    if (r->depth++ > NESTING_MAX)
        return NULL;
    do {
        *last = read_symbol_row(r);
        if (!*last)
            return NULL;
        last = &(*last)->next;
    } while (eat_mark(r, "|"));
    r->depth--;
    return choice;
}

static bool read_rules(struct grammar_reading *r)
{
    for (skip_layout(r); r->p < r->end; skip_layout(r)) {
        struct rule *rule = rule_named(r, read_rule_name(r));

        skip_layout(r);
        if (!eat_mark(r, "::="))
            return false;
        rule->body = read_sample_choice(r);
        if (!rule->body)
            return false;
    }
    return true;
}

/* --- the shortest sentence --- */

static unsigned multiply_cost(unsigned n, unsigned cost)
{
    return n == 0 ? 0 : cost >= ENDLESS / n ? ENDLESS : n * cost;
}

/* Returns the least number of bytes, plus one for every rule entered, so that a path never enters a
 * rule without need. */
static unsigned cost_of(const struct grammar_symbol *n)
{
    unsigned sum = 0, least = ENDLESS;

    switch (n->kind) {
    case LITERAL:
        return (unsigned)n->text.len;
    case RULE:
        return n->rule->cost >= ENDLESS ? ENDLESS : n->rule->cost + 1;
    case SEQUENCE:
        for (const struct grammar_symbol *x = n->parts; x && sum < ENDLESS; x = x->next)
            sum += cost_of(x);
        return multiply_cost(n->min, sum >= ENDLESS ? ENDLESS : sum);
    case CHOICE:
        for (const struct grammar_symbol *x = n->parts; x; x = x->next)
            least = MIN_OF(least, cost_of(x));
    }
    return least;
}

static void find_costs(struct grammar_reading *r)
{
    bool changed = true;

    for (int i = 0; changed && i < PASSES_MAX; i++) {
        changed = false;
        for (struct rule *x = r->rules; x; x = x->next) {
            unsigned cost = x->body ? cost_of(x->body) : ENDLESS;

            changed = changed || cost < x->cost;
            x->cost = MIN_OF(cost, x->cost);
        }
    }
}

/* Writes the shortest sentence. n has a cost, so every rule that it needs is defined. */
static void write_sentence(const struct grammar_symbol *n, struct buf *out)
{
    const struct grammar_symbol *best;

    CHECK(n);
    best = n->parts;
    switch (n->kind) {
    case LITERAL:
        buf_add_str(out, n->text);
        break;
    case RULE:
        write_sentence(n->rule->body, out);
        break;
    case SEQUENCE:
        for (unsigned i = 0; i < n->min; i++)
            for (const struct grammar_symbol *x = n->parts; x; x = x->next)
                write_sentence(x, out);
        break;
    case CHOICE:
        for (const struct grammar_symbol *x = n->parts; x; x = x->next)
            if (cost_of(x) < cost_of(best))
                best = x;
        write_sentence(best, out);
    }
}

int gbnf_sample(struct str grammar, struct buf *out, struct err *e)
{
    struct grammar_reading r = {.p = grammar.p, .end = grammar.p + grammar.len};
    bool read = read_rules(&r);
    const struct rule *root = map_get(&r.names, STR("root"));
    int rc = 0;

    if (read)
        find_costs(&r);
    if (!read || !root)
        rc = err_set(e, ERR_INVALID, "the grammar cannot be read");
    else if (root->cost >= GBNF_SAMPLE_MAX)
        rc = err_set(e, ERR_INVALID, "the grammar has no short sentence");
    else
        write_sentence(root->body, out);
    map_done(&r.names);
    arena_done(&r.arena);
    return rc;
}
