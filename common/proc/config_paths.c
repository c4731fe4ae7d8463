/* Paths of settings become absolute when they are loaded, because a process may pass them to a
 * process in a different folder, and unix sockets need it. A relative path begins in the folder in
 * which the gateway was started, in YAML files, too. Some paths are inside of other values
 * (key-file=F). `~/x` and `$HOME/x` are mistakes, because paths are not expanded as by a shell. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/os/file.h"
#include "common/proc/config_internal.h"

/* A path inside of a value. It follows `mark`, and ends at `end` or at the value's end. */
struct inner_path {
    size_t offset; /* offset of the setting's field in struct config */
    const char *mark;
    bool leads; /* the mark must begin the value */
    char end;   /* 0: the path ends with the value */
};

#define INNER(field, mark, leads, end)                         \
    {                                                          \
        offsetof(struct config, field), (mark), (leads), (end) \
    }
static const struct inner_path inner_paths[] = {
    INNER(upstream, "unix:", true, 0),
    INNER(engine, "builtin:script:", false, ','),
    INNER(engine, "builtin:recorded:", false, ','),
    INNER(engine, ",key-file=", false, ','),
    INNER(scorer, ",key-file=", false, ','),
    INNER(engine_source, "file:", true, 0),
    INNER(engine_source, ",key-file=", false, ','),
    INNER(sink, "file:", true, 0),
    INNER(sink, "redis:unix:", true, '?'),
    INNER(sink, "password_file=", false, '&'),
};

char *config_absolute_path(const char *flag, const char *path, struct buf *mistakes)
{
    char *full = NULL;

    if (path[0] == '~' || path[0] == '$')
        buf_printf(
            mistakes,
            "--%s: \"%s\" begins with '%c', which only a shell replaces: write an absolute path "
            "(or ./%s for a file of this name)\n",
            flag, path, path[0], path);
    else if (!(full = file_absolute_path(path)))
        buf_printf(mistakes,
                   "--%s: \"%s\" is relative to the folder of the start, which does not exist: "
                   "%s\n",
                   flag, path, strerror(errno));
    return full;
}

/* Returns the absolute path, or NULL if the path is absolute already or is a mistake, which is
 * reported. */
static char *resolve_path(struct config_load *l, const struct config_row *row, struct str path)
{
    char *text, *full;

    if (path.len == 0 || path.p[0] == '/')
        return NULL;
    text = mem_strndup(path.p, path.len);
    full = config_absolute_path(row->flag, text, l->mistakes);
    free(text);
    return full;
}

static void resolve_field(struct config_load *l, const struct config_row *row, char **field)
{
    char *full = *field ? resolve_path(l, row, str_cstr(*field)) : NULL;

    if (!full)
        return;
    free(*field);
    *field = full;
}

/* Makes the path at [at, at + len) of *text absolute. */
static void resolve_inner(struct config_load *l, const struct config_row *row, char **text,
                          const struct inner_path *p)
{
    struct str all = str_cstr(*text), mark = str_cstr(p->mark), path;
    size_t at = str_find(all, mark, 0), end;
    struct buf out = {0};
    char *full;

    if (at == SIZE_MAX || (p->leads && at > 0))
        return;
    path = str_sub(all, at + mark.len, SIZE_MAX);
    end = p->end ? str_find(path, str_of(&p->end, 1), 0) : SIZE_MAX;
    path = str_sub(path, 0, end);
    full = resolve_path(l, row, path);
    if (!full)
        return;
    buf_printf(&out, "%.*s%s%s", (int)(path.p - all.p), all.p, full, path.p + path.len);
    free(full);
    free(*text);
    *text = buf_take(&out);
}

static void resolve_inner_paths(struct config_load *l, const struct config_row *row)
{
    char *field = (char *)l->config + row->offset;

    for (size_t i = 0; i < ARRAY_LEN(inner_paths); i++) {
        const struct inner_path *p = &inner_paths[i];
        struct config_list *list = (struct config_list *)(void *)field;

        if (p->offset != row->offset)
            continue;
        for (size_t k = 0; row->type == CONFIG_LIST && k < list->n; k++)
            resolve_inner(l, row, &list->at[k], p);
        if (row->type == CONFIG_STRING && *(char **)(void *)field)
            resolve_inner(l, row, (char **)(void *)field, p);
    }
}

void config_resolve_paths(struct config_load *l)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];

        if (!row->flag)
            continue;
        if (row->type == CONFIG_PATH)
            resolve_field(l, row, (char **)(void *)((char *)l->config + row->offset));
        else
            resolve_inner_paths(l, row);
    }
}
