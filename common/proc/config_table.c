/* The table of settings (config.def), and the parsing of values by type: ranges and units. An
 * invalid value does not change the field and adds a line to l->mistakes. */

#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/nearest.h"
#include "common/proc/config_internal.h"

#define V(value, text) text,
#define E(set, values) static const char *const values_##set[] = {values};
#include "common/proc/config.def"

/* GROUP and X interleave in one list. A GROUP row has only a title and is skipped. */
enum { START = false, LIVE = true };

const struct config_row config_rows[] = {
#define GROUP(title) {.group = (title)},
#define X(type_, field, flag_, deflt_, min_, max_, set, reload, help_) \
    {.type = CONFIG_##type_,                                           \
     .flag = (flag_),                                                  \
     .deflt = (deflt_),                                                \
     .help = (help_),                                                  \
     .min = (double)(min_),                                            \
     .max = (double)(max_),                                            \
     .values = values_##set,                                           \
     .n_values = ARRAY_LEN(values_##set),                              \
     .live = (reload),                                                 \
     .offset = offsetof(struct config, field)},
#include "common/proc/config.def"
};
const size_t config_n_rows = ARRAY_LEN(config_rows);

/* Compares names; "max_nodes" equals "max-nodes". */
static bool same_name(struct str a, const char *flag)
{
    if (a.len != strlen(flag))
        return false;
    for (size_t i = 0; i < a.len; i++) {
        if ((a.p[i] == '_' ? '-' : a.p[i]) != flag[i])
            return false;
    }
    return true;
}

const struct config_row *config_row_find(struct str name)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].flag && same_name(name, config_rows[i].flag))
            return &config_rows[i];
    }
    return NULL;
}

/* Finds the setting whose name is nearest. */
static struct nearest nearest(struct str name)
{
    struct nearest n = nearest_to(name);

    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].flag)
            nearest_offer(&n, config_rows[i].flag);
    }
    return n;
}

/* Reports an unknown name, with a hint. */
void config_unknown(struct config_load *l, struct str name, const char *place)
{
    const char *best = nearest(name).name;

    buf_printf(l->mistakes, "%s: unknown setting \"%.*s\"", place, (int)name.len, name.p);
    if (best)
        buf_printf(l->mistakes, "; did you mean \"%s\"?", best);
    buf_puts(l->mistakes, "\n");
}

bool config_mistyped(struct str name)
{
    struct nearest n = nearest(name);

    return name.len >= 6 && n.name && n.cost <= 2;
}

/* Splits text into a decimal number with at most 6 fraction digits and the unit after it. */
static int split_number(struct str text, double *ret, struct str *ret_unit)
{
    char digits[40];
    size_t n = 0;
    char *end;

    while (n < text.len && n + 1 < sizeof(digits) &&
           ((text.p[n] >= '0' && text.p[n] <= '9') || text.p[n] == '.'))
        n++;
    if (n == 0 || text.p[0] == '.')
        return -1;
    memcpy(digits, text.p, n);
    digits[n] = 0;
    *ret = strtod(digits, &end);
    if (*end)
        return -1;
    *ret_unit = str_trim(str_sub(text, n, SIZE_MAX));
    return 0;
}

struct unit {
    const char *name;
    double factor;
};

/* Parses a number and its unit. Returns -1 for anything else. */
static int with_unit(struct str text, const struct unit *units, size_t n, int64_t *ret)
{
    struct str unit;
    double v;

    if (split_number(str_trim(text), &v, &unit))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (str_eq_nocase(unit, str_cstr(units[i].name))) {
            v *= units[i].factor;
            if (v > 9e15)
                return -1;
            *ret = (int64_t)(v + 0.5);
            return 0;
        }
    }
    return -1;
}

int config_parse_duration(struct str text, int64_t *ret_ms)
{
    static const struct unit units[] = {{"", 1e3},  {"ms", 1},    {"s", 1e3},
                                        {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};

    return with_unit(text, units, ARRAY_LEN(units), ret_ms);
}

/* Units are powers of 1024, with or without the i. */
int config_parse_size(struct str text, int64_t *ret_bytes)
{
    static const struct unit units[] = {
        {"", 1},
        {"b", 1},
        {"k", 1024},
        {"kb", 1024},
        {"kib", 1024},
        {"m", 1048576},
        {"mb", 1048576},
        {"mib", 1048576},
        {"g", 1073741824},
        {"gb", 1073741824},
        {"gib", 1073741824},
        {"t", 1099511627776.0},
        {"tb", 1099511627776.0},
        {"tib", 1099511627776.0},
    };

    return with_unit(text, units, ARRAY_LEN(units), ret_bytes);
}

/* Parses on, true, yes, 1, and their opposites. */
static int parse_bool(struct str s, bool *ret)
{
    static const char *const yes[] = {"on", "true", "yes", "1"};
    static const char *const no[] = {"off", "false", "no", "0"};

    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (str_eq_nocase(s, str_cstr(yes[i])) || str_eq_nocase(s, str_cstr(no[i]))) {
            *ret = str_eq_nocase(s, str_cstr(yes[i]));
            return 0;
        }
    }
    return -1;
}

static void range_text(const struct config_row *row, double v, struct buf *out)
{
    if (row->type == CONFIG_DURATION)
        buf_printf(out, "%.15gs", v / 1000);
    else
        buf_printf(out, "%.15g", v);
}

/* Begins a line such as "--workers: ", "ROLLGATE_WORKERS: " or "file.yaml:3: workers: ": the place
 * of the mistake, then the setting unless the place names it. */
static void begin_mistake(struct config_load *l, const struct config_row *row, const char *place)
{
    buf_printf(l->mistakes, "%s: ", place);
    if (!str_starts(str_cstr(place), STR("--")) && !str_starts(str_cstr(place), STR("ROLLGATE_")))
        buf_printf(l->mistakes, "%s: ", row->flag);
}

static void wrong(struct config_load *l, const struct config_row *row, struct str text,
                  const char *place, const char *want)
{
    begin_mistake(l, row, place);
    buf_printf(l->mistakes, "\"%.*s\" is not %s\n", (int)text.len, text.p, want);
}

/* Checks a number against the row's range and reports a mistake. A row without limits accepts every
 * number. */
static bool in_range(struct config_load *l, const struct config_row *row, struct str text, double v,
                     const char *place)
{
    if ((row->min == 0 && row->max == 0) || (v >= row->min && v <= row->max))
        return true;
    begin_mistake(l, row, place);
    buf_puts(l->mistakes, "must be between ");
    range_text(row, row->min, l->mistakes);
    buf_puts(l->mistakes, " and ");
    range_text(row, row->max, l->mistakes);
    buf_printf(l->mistakes, ", not %.*s\n", (int)text.len, text.p);
    return false;
}

/* Sets an integer, a duration (ms) or a size (bytes). */
static void set_number(struct config_load *l, const struct config_row *row, struct str text,
                       const char *place)
{
    int64_t *field = (int64_t *)(void *)((char *)l->config + row->offset);
    const char *want = "a whole number";
    int64_t v = 0;
    uint64_t u = 0;
    int rc;

    if (row->type == CONFIG_DURATION) {
        rc = config_parse_duration(text, &v);
        want = "a duration such as 10s, 250ms or 2h";
    } else if (row->type == CONFIG_SIZE) {
        rc = config_parse_size(text, &v);
        want = "a size such as 4096, 64KiB or 2GiB";
    } else {
        rc = str_to_u64(text, INT64_MAX, &u);
        v = (int64_t)u;
    }
    if (rc)
        wrong(l, row, text, place, want);
    else if (in_range(l, row, text, (double)v, place))
        *field = v;
}

/* Sets an enumeration: the field is the index of the value in the row. */
static void set_enum(struct config_load *l, const struct config_row *row, struct str text,
                     const char *place)
{
    for (size_t i = 0; i < row->n_values; i++) {
        if (str_eq_c(text, row->values[i])) {
            *(int *)(void *)((char *)l->config + row->offset) = (int)i;
            return;
        }
    }
    begin_mistake(l, row, place);
    buf_printf(l->mistakes, "\"%.*s\" is not one of", (int)text.len, text.p);
    for (size_t i = 0; i < row->n_values; i++)
        buf_printf(l->mistakes, "%s %s", i > 0 ? "," : "", row->values[i]);
    buf_puts(l->mistakes, "\n");
}

static void list_clear(struct config_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->at[i]);
    free(list->at);
    *list = (struct config_list){0};
}

static void list_add(struct config_list *list, struct str text)
{
    list->at = mem_realloc_array(list->at, list->n + 1, sizeof(*list->at));
    list->at[list->n++] = mem_strndup(text.p, text.len);
}

/* Sets a string. Empty text means that the setting has no value. */
static void set_text(struct config_load *l, const struct config_row *row, struct str text,
                     const char *place)
{
    char **field = (char **)(void *)((char *)l->config + row->offset);

    if (memchr(text.p, 0, text.len)) {
        wrong(l, row, str_of("", 0), place, "free of NUL bytes");
        return;
    }
    if (row->type == CONFIG_LIST) {
        if (text.len)
            list_add((struct config_list *)(void *)field, text);
        return;
    }
    free(*field);
    *field = text.len ? mem_strndup(text.p, text.len) : NULL;
}

/* Appends to a list if the same source set it. A list of a stronger source replaces the weaker
 * one's. */
void config_set(struct config_load *l, const struct config_row *row, struct str text,
                enum config_source source, const char *place)
{
    enum config_source *from = &l->source[row - config_rows];

    if (row->type == CONFIG_LIST && *from < source)
        list_clear((struct config_list *)(void *)((char *)l->config + row->offset));
    *from = source;
    switch (row->type) {
    case CONFIG_BOOL:
        if (parse_bool(text, (bool *)((char *)l->config + row->offset)))
            wrong(l, row, text, place, "on or off");
        break;
    case CONFIG_ENUM:
        set_enum(l, row, text, place);
        break;
    case CONFIG_STRING:
    case CONFIG_PATH:
    case CONFIG_LIST:
        set_text(l, row, text, place);
        break;
    case CONFIG_INT:
    case CONFIG_DURATION:
    case CONFIG_SIZE:
        set_number(l, row, text, place);
        break;
    }
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < config_n_rows; i++) {
        char *field = (char *)c + config_rows[i].offset;

        if (!config_rows[i].flag)
            continue;
        if (config_rows[i].type == CONFIG_LIST)
            list_clear((struct config_list *)(void *)field);
        else if (config_rows[i].type == CONFIG_STRING || config_rows[i].type == CONFIG_PATH)
            free(*(char **)(void *)field);
    }
    list_clear(&c->args);
    list_clear(&c->replaced);
    free(c->listen_at);
    free(c);
}
