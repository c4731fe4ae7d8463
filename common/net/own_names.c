#include "common/net/own_names.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/os/file.h"

enum { AGAIN_MS = 1000, FILE_BYTES_MAX = 4 << 20 };

struct own_names {
    char host[HOST_NAME_MAX + 1]; /* host name for which the names were read */
    VEC(char *) names;
    uint64_t read_ms; /* clock_ms of the last reading; 0: never */
};

struct own_names *own_names_new(void)
{
    return mem_zalloc(sizeof(struct own_names));
}

static void clear_names(struct own_names *n)
{
    for (size_t i = 0; i < n->names.n; i++)
        free(n->names.at[i]);
    n->names.n = 0;
}

void own_names_free(struct own_names *n)
{
    if (!n)
        return;
    clear_names(n);
    vec_done(&n->names);
    free(n);
}

static bool is_listed(const struct own_names *n, struct str name)
{
    for (size_t i = 0; i < n->names.n; i++) {
        if (str_eq_nocase(str_cstr(n->names.at[i]), name))
            return true;
    }
    return false;
}

/* Adds a name, without a dot at its end. */
static void add_name(struct own_names *n, struct str name)
{
    if (name.len > 0 && name.p[name.len - 1] == '.')
        name.len--;
    if (name.len > 0 && !is_listed(n, name))
        *vec_push(&n->names) = mem_strndup(name.p, name.len);
}

/* Returns the next word of a line. Empty at its end. */
static struct str next_word(struct str *line)
{
    struct str rest = str_trim(*line);
    size_t len = 0;

    while (len < rest.len && rest.p[len] != ' ' && rest.p[len] != '\t')
        len++;
    *line = str_sub(rest, len, SIZE_MAX);
    return str_sub(rest, 0, len);
}

/* Adds the first label of the host name in each domain of a "search" or "domain" line. */
static void read_search(struct own_names *n, struct str label, struct str line)
{
    struct str word = next_word(&line);

    if (!str_eq_c(word, "search") && !str_eq_c(word, "domain"))
        return;
    while ((word = next_word(&line)).len > 0) {
        struct buf name = {0};

        buf_add_str(&name, label);
        buf_add_c(&name, '.');
        buf_add_str(&name, word);
        if (word.p[0] != '.')
            add_name(n, buf_str(&name));
        buf_done(&name);
    }
}

/* Adds all names of an "ADDRESS NAME..." line if one is ours. Lines that merely give an address of
 * this machine do not count: lists of advertisers' names have such lines. */
static void read_hosts(struct own_names *n, struct str label, struct str line)
{
    struct str names, word;
    bool ours = false;

    (void)label;
    line = str_sub(line, 0, str_find(line, STR("#"), 0));
    (void)next_word(&line);
    names = line;
    while (!ours && (word = next_word(&line)).len > 0)
        ours = is_listed(n, word);
    while (ours && (word = next_word(&names)).len > 0)
        add_name(n, word);
}

typedef void (*line_fn)(struct own_names *n, struct str label, struct str line);

/* Reads a file line by line. A file that cannot be read has no names. */
static void read_lines(struct own_names *n, const char *path, struct str label, line_fn fn)
{
    struct buf text = {0};
    struct str rest;

    if (file_read(path, FILE_BYTES_MAX, &text, NULL) == 0) {
        for (rest = buf_str(&text); rest.len > 0;)
            fn(n, label, str_cut(&rest, '\n'));
    }
    buf_done(&text);
}

static void read_names(struct own_names *n, const char *host)
{
    struct str all = str_cstr(host), label = str_sub(all, 0, str_find(all, STR("."), 0));

    clear_names(n);
    memcpy(n->host, host, all.len + 1);
    n->read_ms = clock_ms();
    if (all.len == 0)
        return;
    add_name(n, all);
    add_name(n, label);
    read_lines(n, "/etc/resolv.conf", label, read_search);
    read_lines(n, "/etc/hosts", label, read_hosts);
}

bool own_names_has(struct own_names *n, const char *name)
{
    char host[HOST_NAME_MAX + 1] = "";

    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = 0;
    if (n->read_ms == 0 || strcmp(host, n->host) != 0 ||
        (!is_listed(n, str_cstr(name)) && clock_ms() - n->read_ms >= AGAIN_MS))
        read_names(n, host);
    return is_listed(n, str_cstr(name));
}
