/*
 * Reads the runner file as a YAML document and walks it: root -> runners -> one runner -> its
 * fields. One row of `fields` describes a setting: the kind of its value, and its field in struct
 * roster_runner. A mistake is recorded with its line, and the walk continues. The roster is valid
 * only without mistakes. All its strings are in its arena.
 *
 * The second half of the file puts a task's input into arguments. "{input.a.b}" must be a whole
 * argument, so no input can add arguments or choose the program.
 */
#include "runner/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/base/nearest.h"
#include "common/net/url.h"
#include "common/os/file.h"
#include "common/proc/config.h"

enum { ARGUMENT_MAX = 128 << 10, /* the kernel's limit for one argument */ WORDS_MAX = 4096 };

struct roster_reader {
    const char *path;
    yaml_document_t doc;
    struct roster *roster;
    struct buf *mistakes;
};

enum roster_kind { ARGV, URL, NAMES, VARIABLES, SLOTS, RATE, DURATION };

static const struct roster_field {
    const char *name;
    enum roster_kind kind;
    size_t offset;
} fields[] = {
    {"run", ARGV, offsetof(struct roster_runner, run)},
    {"score", ARGV, offsetof(struct roster_runner, score)},
    {"http", URL, offsetof(struct roster_runner, http)},
    {"cancel", URL, offsetof(struct roster_runner, cancel)},
    {"pass_env", NAMES, offsetof(struct roster_runner, pass_env)},
    {"env", VARIABLES, offsetof(struct roster_runner, env)},
    {"slots", SLOTS, offsetof(struct roster_runner, slots)},
    {"start_rate", RATE, offsetof(struct roster_runner, start_rate)},
    {"timeout", DURATION, offsetof(struct roster_runner, timeout_ms)},
    {"score_timeout", DURATION, offsetof(struct roster_runner, score_timeout_ms)},
    {"grace", DURATION, offsetof(struct roster_runner, grace_ms)},
};

/* --- mistakes --- */

static void add_mistake(struct roster_reader *r, const yaml_node_t *at, const char *runner,
                        const char *field, const char *what)
{
    buf_printf(r->mistakes, "%s:%zu: ", r->path, at ? at->start_mark.line + 1 : 1);
    if (runner)
        buf_printf(r->mistakes, "%s%s%s: ", runner, field ? "." : "", field ? field : "");
    buf_printf(r->mistakes, "%s\n", what);
}

static struct str read_scalar(const yaml_node_t *n)
{
    if (!n || n->type != YAML_SCALAR_NODE)
        return (struct str){0};
    return str_of((const char *)n->data.scalar.value, n->data.scalar.length);
}

/* Copies a scalar as a C string into the roster's arena. Returns NULL if it is not a scalar or
 * contains a NUL. */
static char *copy_node_text(struct roster_reader *r, const yaml_node_t *n)
{
    struct str s = read_scalar(n);

    if (!s.p || memchr(s.p, 0, s.len))
        return NULL;
    return arena_cstr(&r->roster->arena, s);
}

static const yaml_node_t *get_node(struct roster_reader *r, int index)
{
    return yaml_document_get_node(&r->doc, index);
}

static size_t items_of(const yaml_node_t *n)
{
    return (size_t)(n->data.sequence.items.top - n->data.sequence.items.start);
}

static size_t pairs_of(const yaml_node_t *n)
{
    return (size_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);
}

/* --- values --- */

/* Reports whether the whole word is "{input}" or "{input.a.b}". */
static bool is_placeholder(struct str word)
{
    return str_starts(word, STR("{input")) && str_ends(word, STR("}")) &&
           (word.len == 7 || (word.len > 8 && word.p[6] == '.')) &&
           str_find(word, STR(".."), 0) == SIZE_MAX && word.p[word.len - 2] != '.';
}

static const char *word_fault(const char *word)
{
    struct str s = str_cstr(word);

    if (str_find(s, STR("{input"), 0) == SIZE_MAX || is_placeholder(s))
        return NULL;
    return "{input.NAME} must be a whole argument";
}

static bool is_runner_name(const char *s)
{
    if (!s || !*s || (*s >= '0' && *s <= '9'))
        return false;
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
           strlen(s);
}

static bool is_own_variable(const char *name)
{
    static const char *const ours[] = {"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL",
                                       "ANTHROPIC_API_KEY"};

    return str_is_one_of(str_cstr(name), ours, ARRAY_LEN(ours)) ||
           strncmp(name, "ROLLGATE_", 9) == 0;
}

/* Returns what is wrong with a program, or NULL. A run begins in an empty folder, so a path must
 * work there. */
static const char *program_fault(const char *program)
{
    if (!*program || is_placeholder(str_cstr(program)))
        return "must begin with a program, not with an input";
    if (*program == '~' || *program == '$' || (*program != '/' && strchr(program, '/')))
        return "must begin with a program: an absolute path, or a name in PATH; runs start in an "
               "empty folder";
    return word_fault(program);
}

/* Reads a list of texts. Returns NULL after reporting a mistake. */
static char **read_words(struct roster_reader *r, const yaml_node_t *n, const char *runner,
                         const struct roster_field *f)
{
    size_t count = n->type == YAML_SEQUENCE_NODE ? items_of(n) : 0;
    char **out;

    if (count == 0 || count > WORDS_MAX) {
        add_mistake(r, n, runner, f->name, "must be a list of 1 to 4096 strings");
        return NULL;
    }
    out = arena_calloc(&r->roster->arena, count + 1, sizeof(*out));
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *item = get_node(r, n->data.sequence.items.start[i]);
        const char *fault = NULL;

        out[i] = copy_node_text(r, item);
        if (!out[i])
            fault = "must be a list of strings";
        else if (f->kind == ARGV)
            fault = i == 0 ? program_fault(out[i]) : word_fault(out[i]);
        else if (!is_runner_name(out[i]))
            fault = "must contain names of variables";
        else if (is_own_variable(out[i]))
            fault = "names a variable that rollgate sets itself";
        if (fault) {
            add_mistake(r, item, runner, f->name, fault);
            return NULL;
        }
    }
    return out;
}

static char **read_variables(struct roster_reader *r, const yaml_node_t *n, const char *runner,
                             const struct roster_field *f)
{
    size_t count = n->type == YAML_MAPPING_NODE ? pairs_of(n) : 0;
    char **out;

    if (n->type != YAML_MAPPING_NODE || count > WORDS_MAX) {
        add_mistake(r, n, runner, f->name, "must be a mapping of variables to strings");
        return NULL;
    }
    out = arena_calloc(&r->roster->arena, count + 1, sizeof(*out));
    for (size_t i = 0; i < count; i++) {
        yaml_node_pair_t pair = n->data.mapping.pairs.start[i];
        const char *name = copy_node_text(r, get_node(r, pair.key)),
                   *value = copy_node_text(r, get_node(r, pair.value));

        if (!is_runner_name(name) || !value || is_own_variable(name)) {
            add_mistake(r, get_node(r, pair.key), runner, f->name,
                        is_runner_name(name) && value
                            ? "sets a variable that rollgate sets itself"
                            : "must be a mapping of variables to strings");
            return NULL;
        }
        out[i] = (char *)(uintptr_t)arena_printf(&r->roster->arena, "%s=%s", name, value).p;
    }
    return out;
}

static void read_url(struct roster_reader *r, const yaml_node_t *n, const char *runner,
                     const struct roster_field *f, const char **ret)
{
    const char *text = copy_node_text(r, n);
    struct url u;
    struct err e;

    if (!text)
        add_mistake(r, n, runner, f->name, "must be a URL");
    else if (url_parse(str_cstr(text), &u, &e))
        add_mistake(r, n, runner, f->name, e.text);
    else if (u.local)
        add_mistake(r, n, runner, f->name, "must begin with http:// or https://");
    else
        *ret = text;
}

/* Parses a rate such as "4/s", "30/m" or "2.5/s". */
static int parse_rate(struct str s, double *ret)
{
    char number[32], *end;
    double unit = str_ends(s, STR("/s")) ? 1 : str_ends(s, STR("/m")) ? 60 : 0;

    if (unit == 0 || s.len < 3 || s.len - 2 >= sizeof(number) || s.p[0] < '0' || s.p[0] > '9')
        return -1;
    memcpy(number, s.p, s.len - 2);
    number[s.len - 2] = '\0';
    if (strspn(number, "0123456789.") != s.len - 2)
        return -1;
    *ret = strtod(number, &end) / unit;
    return *end || !(*ret >= 0.001) || *ret > 100000 ? -1 : 0;
}

static void read_roster_number(struct roster_reader *r, const yaml_node_t *n, const char *runner,
                               const struct roster_field *f, void *to)
{
    static const int64_t day_ms = 86400000;
    struct str s = read_scalar(n);
    uint64_t slots;
    int64_t ms;

    if (f->kind == SLOTS) {
        if (!s.p || str_to_u64(s, ROSTER_SLOTS_MAX, &slots) || slots == 0)
            add_mistake(r, n, runner, f->name, "must be a number from 1 to 10000");
        else
            *(int64_t *)to = (int64_t)slots;
    } else if (f->kind == RATE) {
        if (!s.p || parse_rate(s, to))
            add_mistake(r, n, runner, f->name, "must be a rate such as 4/s or 30/m");
    } else if (!s.p || config_parse_duration(s, &ms) || ms < 0 || ms > 30 * day_ms ||
               (ms == 0 && strcmp(f->name, "grace") != 0)) {
        add_mistake(r, n, runner, f->name, "must be a duration such as 45m or 20s, up to 720h");
    } else {
        *(int64_t *)to = ms;
    }
}

static void read_field(struct roster_reader *r, const yaml_node_t *n, struct roster_runner *p,
                       const struct roster_field *f)
{
    char *to = (char *)p + f->offset;

    switch (f->kind) {
    case ARGV:
    case NAMES:
        *(char ***)(void *)to = read_words(r, n, p->name, f);
        break;
    case VARIABLES:
        *(char ***)(void *)to = read_variables(r, n, p->name, f);
        break;
    case URL:
        read_url(r, n, p->name, f, (const char **)(void *)to);
        break;
    default:
        read_roster_number(r, n, p->name, f, to);
    }
}

/* --- runners --- */

static const struct roster_field *find_field(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (str_eq_c(name, fields[i].name))
            return &fields[i];
    return NULL;
}

static void add_unknown_field(struct roster_reader *r, const yaml_node_t *at, const char *runner,
                              struct str name)
{
    struct nearest near = nearest_to(name);
    char what[200];

    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        nearest_offer(&near, fields[i].name);
    (void)snprintf(what, sizeof(what), "unknown setting \"%.*s\"%s%s%s", (int)MIN_OF(name.len, 60u),
                   name.p ? name.p : "", near.name ? "; did you mean \"" : "",
                   near.name ? near.name : "", near.name ? "\"?" : "");
    add_mistake(r, at, runner, NULL, what);
}

static void check_runner(struct roster_reader *r, const yaml_node_t *n,
                         const struct roster_runner *p, uint32_t seen)
{
    static const char *const of_processes[] = {"score", "pass_env", "env", "score_timeout"};
    bool run = seen & 1u << (find_field(STR("run")) - fields);
    bool http = seen & 1u << (find_field(STR("http")) - fields);

    if (run == http)
        add_mistake(r, n, p->name, NULL, "needs run or http, and not both");
    for (size_t i = 0; http && !run && i < ARRAY_LEN(of_processes); i++)
        if (seen & 1u << (find_field(str_cstr(of_processes[i])) - fields))
            add_mistake(r, n, p->name, of_processes[i], "is allowed with run only");
    if (run && seen & 1u << (find_field(STR("cancel")) - fields))
        add_mistake(r, n, p->name, "cancel", "is allowed with http only");
}

static void read_runner(struct roster_reader *r, const yaml_node_t *n, struct roster_runner *p)
{
    uint32_t seen = 0;

    if (n->type != YAML_MAPPING_NODE) {
        add_mistake(r, n, p->name, NULL, "must be a mapping with run or http");
        return;
    }
    for (size_t i = 0; i < pairs_of(n); i++) {
        yaml_node_pair_t pair = n->data.mapping.pairs.start[i];
        const yaml_node_t *key = get_node(r, pair.key);
        const struct roster_field *f = find_field(read_scalar(key));
        uint32_t bit = f ? 1u << (f - fields) : 0;

        if (!f)
            add_unknown_field(r, key, p->name, read_scalar(key));
        else if (seen & bit)
            add_mistake(r, key, p->name, f->name, "set twice");
        else
            read_field(r, get_node(r, pair.value), p, f);
        seen |= bit;
    }
    check_runner(r, n, p, seen);
}

static bool name_is_good(struct str s)
{
    return s.p && s.len >= 1 && s.len <= ROSTER_NAME_MAX && !memchr(s.p, 0, s.len);
}

static void read_runners(struct roster_reader *r, const yaml_node_t *n)
{
    struct roster *p = r->roster;

    if (n->type != YAML_MAPPING_NODE || pairs_of(n) == 0 || pairs_of(n) > ROSTER_RUNNERS_MAX) {
        add_mistake(r, n, NULL, NULL, "runners: must be a mapping of 1 to 256 runners");
        return;
    }
    p->at = arena_calloc(&p->arena, pairs_of(n), sizeof(*p->at));
    for (size_t i = 0; i < pairs_of(n); i++) {
        yaml_node_pair_t pair = n->data.mapping.pairs.start[i];
        const yaml_node_t *key = get_node(r, pair.key);
        struct roster_runner *one = &p->at[p->n];

        if (!name_is_good(read_scalar(key))) {
            add_mistake(r, key, NULL, NULL, "a runner's name must be a string of 1 to 128 bytes");
            continue;
        }
        *one = (struct roster_runner){.name = copy_node_text(r, key),
                                      .slots = 1,
                                      .timeout_ms = 3600000,
                                      .score_timeout_ms = 600000,
                                      .grace_ms = 20000};
        if (roster_find(p, read_scalar(key)))
            add_mistake(r, key, one->name, NULL, "is defined twice");
        p->n++;
        read_runner(r, get_node(r, pair.value), one);
    }
}

static void read_root(struct roster_reader *r, const yaml_node_t *root)
{
    bool found = false;

    if (!root || root->type != YAML_MAPPING_NODE) {
        add_mistake(r, root, NULL, NULL, "the file must be a mapping with \"runners\"");
        return;
    }
    for (size_t i = 0; i < pairs_of(root); i++) {
        yaml_node_pair_t pair = root->data.mapping.pairs.start[i];

        if (!str_eq_c(read_scalar(get_node(r, pair.key)), "runners") || found) {
            add_mistake(r, get_node(r, pair.key), NULL, NULL,
                        "the file may contain \"runners\" only, once");
            continue;
        }
        found = true;
        read_runners(r, get_node(r, pair.value));
    }
    if (!found)
        add_mistake(r, root, NULL, NULL, "runners: is missing");
}

int roster_read(struct str text, const char *path, struct roster *ret, struct buf *mistakes)
{
    struct roster_reader r = {.path = path, .roster = ret, .mistakes = mistakes};
    size_t before = mistakes->len;
    yaml_parser_t parser;

    *ret = (struct roster){0};
    if (!yaml_parser_initialize(&parser)) {
        add_mistake(&r, NULL, NULL, NULL, "no YAML parser");
        return -1;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.p, text.len);
    if (yaml_parser_load(&parser, &r.doc)) {
        read_root(&r, yaml_document_get_root_node(&r.doc));
        yaml_document_delete(&r.doc);
    } else {
        buf_printf(mistakes, "%s:%zu: %s\n", path, parser.problem_mark.line + 1,
                   parser.problem ? parser.problem : "cannot be read");
    }
    yaml_parser_delete(&parser);
    if (mistakes->len == before)
        return 0;
    roster_done(ret);
    return -1;
}

int roster_load(const char *path, struct roster *ret, struct buf *mistakes)
{
    struct buf text = {0};
    struct err e;
    int rc = -1;

    *ret = (struct roster){0};
    if (file_read(path, ROSTER_FILE_MAX, &text, &e))
        buf_printf(mistakes, "--runners: %s\n", e.text);
    else
        rc = roster_read(buf_str(&text), path, ret, mistakes);
    buf_done(&text);
    return rc;
}

void roster_done(struct roster *p)
{
    arena_done(&p->arena);
    *p = (struct roster){0};
}

const struct roster_runner *roster_find(const struct roster *p, struct str name)
{
    for (size_t i = 0; i < p->n; i++)
        if (str_eq_c(name, p->at[i].name))
            return &p->at[i];
    return NULL;
}

/* --- arguments --- */

/* Returns a member of the value, or an item by its number. */
static const struct json *step_into(const struct json *v, struct str name)
{
    uint64_t i;

    if (json_is(v, JSON_ARRAY))
        return str_to_u64(name, UINT32_MAX, &i) ? NULL : json_at(v, i);
    return json_get_str(v, name);
}

static const struct json *value_at(const struct json *input, struct str place)
{
    const struct json *v = input;
    struct str rest = {0};

    if (place.len != 7)
        rest = str_sub(place, 7, place.len - 8);
    while (v && rest.len > 0)
        v = step_into(v, str_cut(&rest, '.'));
    return v;
}

static int expand_argument(struct arena *a, struct str word, const struct json *input, char **ret,
                           struct err *e)
{
    const struct json *v = value_at(input, word);
    struct buf text = {0};
    int rc = 0;

    if (json_is_null(v))
        return err_field(e, "input", "the task's input has no value for %.*s",
                         (int)MIN_OF(word.len, 200u), word.p);
    if (json_string(v).p)
        buf_add_str(&text, json_string(v));
    else
        json_write(&text, v);
    if (text.len >= ARGUMENT_MAX)
        rc = err_field(e, "input", "%.*s is longer than an argument can be (%d bytes)",
                       (int)MIN_OF(word.len, 200u), word.p, ARGUMENT_MAX - 1);
    else if (text.len > 0 && memchr(text.p, 0, text.len))
        rc = err_field(e, "input", "%.*s holds a NUL, which no argument can",
                       (int)MIN_OF(word.len, 200u), word.p);
    else
        *ret = arena_cstr(a, buf_str(&text));
    buf_done(&text);
    return rc;
}

int roster_arguments(struct arena *a, char *const *words, const struct json *input, char ***ret,
                     struct err *e)
{
    size_t n = 0;

    while (words[n])
        n++;
    *ret = arena_calloc(a, n + 1, sizeof(**ret));
    for (size_t i = 0; i < n; i++) {
        struct str word = str_cstr(words[i]);

        if (!is_placeholder(word))
            (*ret)[i] = words[i];
        else if (expand_argument(a, word, input, &(*ret)[i], e))
            return -1;
    }
    return 0;
}
