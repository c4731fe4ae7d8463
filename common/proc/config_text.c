/* Settings as text: --dump (YAML that can be read back), --help, docs, and the manual page, all
 * from the one table. */

#include <inttypes.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/proc/compat.h"
#include "common/proc/config_internal.h"

static const char *const type_names[] = {
    [CONFIG_BOOL] = "on|off", [CONFIG_INT] = "N",       [CONFIG_DURATION] = "TIME",
    [CONFIG_SIZE] = "BYTES",  [CONFIG_STRING] = "TEXT", [CONFIG_LIST] = "TEXT",
    [CONFIG_ENUM] = "",       [CONFIG_PATH] = "PATH",
};

/* Appends the duration in the largest unit that divides it. */
static void duration_text(int64_t ms, struct buf *out)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}};

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (ms != 0 && ms % units[i].ms == 0) {
            buf_printf(out, "%" PRId64 "%s", ms / units[i].ms, units[i].unit);
            return;
        }
    }
    buf_printf(out, "%" PRId64 "ms", ms);
}

/* Appends text in double quotes, as YAML reads it. */
static void write_quoted(struct str s, struct buf *out)
{
    buf_add_c(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\x%02x", c);
        else
            buf_add_c(out, (char)c);
    }
    buf_add_c(out, '"');
}

/* Appends a value as YAML reads it. */
void config_value_text(const struct config *c, const struct config_row *row, struct buf *out)
{
    const void *field = (const char *)c + row->offset;
    const struct config_list *list = field;
    const char *text;

    switch (row->type) {
    case CONFIG_BOOL:
        buf_puts(out, *(const bool *)field ? "on" : "off");
        break;
    case CONFIG_INT:
    case CONFIG_SIZE:
        buf_printf(out, "%" PRId64, *(const int64_t *)field);
        break;
    case CONFIG_DURATION:
        duration_text(*(const int64_t *)field, out);
        break;
    case CONFIG_ENUM:
        buf_puts(out, row->values[*(const int *)field]);
        break;
    case CONFIG_STRING:
    case CONFIG_PATH:
        text = *(char *const *)field;
        write_quoted(str_cstr(text ? text : ""), out);
        break;
    case CONFIG_LIST:
        buf_add_c(out, '[');
        for (size_t i = 0; i < list->n; i++) {
            buf_puts(out, i ? ", " : "");
            write_quoted(str_cstr(list->at[i]), out);
        }
        buf_add_c(out, ']');
        break;
    }
}

/* Appends a setting's line, and the reason if the profile of --compat has set it. */
static void dump_setting(const struct config *c, const struct config_row *row, struct buf *out)
{
    size_t value;
    const char *why;

    buf_printf(out, "%s: ", row->flag);
    value = out->len;
    config_value_text(c, row, out);
    why = compat_why(c, row, str_sub(buf_str(out), value, SIZE_MAX));
    if (why)
        buf_printf(out, " # --compat: %s", why);
    buf_puts(out, "\n");
}

/* Writes each group's title as a comment. */
void config_dump(const struct config *c, struct buf *out)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];

        if (!row->flag) {
            buf_printf(out, "%s# %s\n", i ? "\n" : "", row->group);
        } else if (row->offset != offsetof(struct config, config_file) &&
                   (row->offset != offsetof(struct config, worker_base) || c->worker_base_given)) {
            dump_setting(c, row, out);
        }
    }
}

/* Writes the values that a setting accepts. */
static void values_of(const struct config_row *row, struct buf *out)
{
    if (row->type != CONFIG_ENUM) {
        buf_puts(out, type_names[row->type]);
        return;
    }
    for (size_t i = 0; i < row->n_values; i++)
        buf_printf(out, "%s%s", i ? "|" : "", row->values[i]);
}

/* Appends bytes in the largest unit that divides them. */
static void size_text(int64_t bytes, struct buf *out)
{
    static const char *const units[] = {"TiB", "GiB", "MiB", "KiB"};

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        int64_t unit = INT64_C(1) << (10 * (ARRAY_LEN(units) - i));

        if (bytes != 0 && bytes % unit == 0) {
            buf_printf(out, "%" PRId64 "%s", bytes / unit, units[i]);
            return;
        }
    }
    buf_printf(out, "%" PRId64, bytes);
}

/* Appends the least or the largest value of a setting. */
static void put_limit(const struct config_row *row, double limit, struct buf *out)
{
    if (row->type == CONFIG_DURATION)
        duration_text((int64_t)limit, out);
    else if (row->type == CONFIG_SIZE)
        size_text((int64_t)limit, out);
    else
        buf_printf(out, "%.15g", limit);
}

/* Appends the range and the values of a setting. */
static void put_range(const struct config_row *row, struct buf *out)
{
    for (size_t i = 0; row->type == CONFIG_ENUM && i < row->n_values; i++)
        buf_printf(out, "%s%s",
                   i == 0                  ? ""
                   : i + 1 < row->n_values ? ", "
                                           : " or ",
                   row->values[i]);
    if (row->type == CONFIG_BOOL)
        buf_puts(out, "on or off");
    if (row->min == 0 && row->max == 0)
        return;
    put_limit(row, row->min, out);
    buf_puts(out, " to ");
    put_limit(row, row->max, out);
}

static void put_comment(const char *text, struct buf *out)
{
    enum { COLUMNS = 100 };

    size_t column = 1;

    buf_add_c(out, '#');
    for (const char *word = text; *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");

        if (column > 1 && column + 1 + n > COLUMNS) {
            buf_puts(out, "\n#");
            column = 1;
        }
        buf_printf(out, " %.*s", (int)n, word);
        column += 1 + n;
        word += n;
    }
    buf_add_c(out, '\n');
}

/* Appends the comment of a setting and its line, with the default. */
static void put_setting(const struct config_row *row, struct buf *out)
{
    struct buf text = {0}, range = {0};

    buf_printf(&text, "%s.%c", row->help, 0);
    put_comment(text.p, out);
    buf_done(&text);
    put_range(row, &range);
    if (row->live)
        buf_puts(&range, range.len ? "; live" : "live");
    if (range.len)
        buf_printf(out, "# (%.*s)\n", (int)range.len, range.p);
    buf_done(&range);
    buf_printf(out, "#%s: ", row->flag);
    if (row->type == CONFIG_LIST)
        buf_puts(out, "[]");
    else if (row->type == CONFIG_STRING || row->type == CONFIG_PATH)
        write_quoted(str_cstr(row->deflt), out);
    else
        buf_puts(out, row->deflt);
    buf_puts(out, "\n\n");
}

void config_docs(struct buf *out)
{
    buf_puts(out, "# Settings of rollgate " RG_VERSION ", with their defaults.\n"
                  "# Uncomment a line to change a setting: rollgate serve --config FILE\n"
                  "# A setting is also a flag (--workers 4) and an environment variable"
                  " (ROLLGATE_WORKERS=4).\n"
                  "# Flags win over the environment, the environment wins over this file.\n"
                  "# live: a reload (SIGHUP) applies it.\n\n");
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];

        if (!row->flag)
            buf_printf(out, "# --- %s ---\n\n", row->group);
        else if (row->offset != offsetof(struct config, config_file))
            put_setting(row, out);
    }
}

/* Appends a constant's value in the form of a setting's default. */
static void write_value(const struct limit_row *row, struct buf *out)
{
    unsigned long long most = row->most;
    bool bytes = strcmp(row->unit, "bytes") == 0;

    if (bytes && most % (1 << 20) == 0)
        buf_printf(out, "%lluMiB", most >> 20);
    else if (bytes && most % (1 << 10) == 0)
        buf_printf(out, "%lluKiB", most >> 10);
    else
        buf_printf(out, "%llu", most);
}

void config_limits(struct buf *out)
{
    buf_puts(out,
             "# Limits\n\nFor operators: every limit that refuses input, from `rollgate config "
             "--limits`. A default of 0 means no limit. Limits in capitals are fixed. Errors "
             "name the field, its value and the limit.\n\n| limit | default | unit | bounds | "
             "protects | a higher limit costs |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_row *row = &limit_rows[i];
        const struct config_row *setting =
            row->setting ? config_row_find(str_cstr(row->name)) : NULL;

        buf_printf(out, "| `%s%s` | ", setting ? "--" : "", setting ? setting->flag : row->name);
        if (setting)
            buf_puts(out, setting->deflt);
        else
            write_value(row, out);
        buf_printf(out, " | %s | %s | %s | %s |\n", row->unit, row->bounds, row->protects,
                   row->cost);
    }
}

/* Appends text as roff: a leading dot or quote and backslashes are escaped. A line may be broken
 * before each bracket. */
static void roff_text(const char *s, struct buf *out)
{
    if (*s == '.' || *s == '\'')
        buf_puts(out, "\\&");
    for (; *s; s++)
        buf_puts(out, *s == '\\'  ? "\\e"
                      : *s == '-' ? "\\-"
                      : *s == '[' ? "\\:["
                                  : (const char[]){*s, 0});
}

/* Writes the manual as roff, ragged at the right, because values such as [,key-file=F][,name=OWN]
 * have no spaces that could be stretched. */
void config_manual(struct buf *out)
{
    buf_puts(out,
             ".TH ROLLGATE.YAML 5 \"\" \"rollgate " RG_VERSION "\"\n.ad l\n.nh\n.SH NAME\n"
             "rollgate.yaml \\- settings of rollgate, session gateway for agentic reinforcement "
             "learning\n"
             ".SH SYNOPSIS\n.B rollgate serve \\-\\-config /etc/rollgate/rollgate.yaml\n"
             "[\\fIsettings\\fR]\n.SH SETTINGS\n"
             "Each setting is a key of the file and a flag. "
             "Flags win over the environment (ROLLGATE_...), the environment over the file.\n");
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];

        if (!row->flag) {
            buf_puts(out, ".SS ");
            roff_text(row->group, out);
            buf_puts(out, "\n");
            continue;
        }
        buf_puts(out, ".TP\n.BI \\-\\-");
        roff_text(row->flag, out);
        buf_puts(out, " \" ");
        values_of(row, out);
        buf_puts(out, "\"\n");
        roff_text(row->help, out);
        buf_puts(out, ".");
        if (row->deflt[0]) {
            buf_puts(out, " Default: ");
            roff_text(row->deflt, out);
            buf_puts(out, ".");
        }
        buf_puts(out, "\n");
    }
}
