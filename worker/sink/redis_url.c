/*
 * Parses from the left: the location up to "?", then options separated by "&". Values have no
 * escapes, so that a path is spelled as in the shell. All strings of the result are copies.
 */
#include "worker/sink/redis_url.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/net/url.h"
#include "common/os/file.h"

enum {
    PORT_DEFAULT = 6379,
    PASSWORD_MAX = 4096,
    SOCKET_PATH_MAX = sizeof(((struct sockaddr_un *)0)->sun_path) - 1
};

static char *copy_text(struct str s)
{
    return mem_strndup(s.p, s.len);
}

static int fail_url(struct err *e, const char *what)
{
    return err_field(e, "sink",
                     "--sink redis: %s; it must be redis://HOST[:PORT][/DB] or unix:PATH, then "
                     "maybe ?stream=NAME&user=NAME&password_file=FILE",
                     what);
}

/* Reads one NAME=VALUE option. */
static int read_option(struct redis_url *u, struct str name, struct str value, struct err *e)
{
    char **field = str_eq_c(name, "stream")          ? &u->stream
                   : str_eq_c(name, "user")          ? &u->user
                   : str_eq_c(name, "password_file") ? &u->password_file
                                                     : NULL;

    if (!field)
        return fail_url(e, "a name after \"?\" is unknown");
    if (*field)
        return fail_url(e, "a name after \"?\" is given twice");
    if (value.len == 0)
        return fail_url(e, "a name after \"?\" has no value");
    *field = copy_text(value);
    return 0;
}

/* Reads HOST[:PORT] or [V6][:PORT]. */
static int read_host(struct redis_url *u, struct str authority, struct err *e)
{
    struct str host;
    const char *fault;

    if (str_find(authority, STR("@"), 0) != SIZE_MAX)
        return fail_url(e, "user and password stand in no URL (use user and password_file)");
    u->port = PORT_DEFAULT;
    fault = url_read_host(authority, &host, &u->port);
    if (fault)
        return fail_url(e, fault);
    u->host = copy_text(host);
    return 0;
}

/* Reads the location: a socket's path, or a host and a database number. */
static int read_location(struct redis_url *u, struct str text, struct err *e)
{
    struct str authority;
    uint64_t db = 0;

    if (str_starts(text, STR("unix:"))) {
        u->path = copy_text(str_sub(text, 5, text.len));
        if (strlen(u->path) > SOCKET_PATH_MAX)
            return fail_url(e, "the socket's path has more than 107 bytes");
        return u->path[0] ? 0 : fail_url(e, "no path");
    }
    if (str_starts(text, STR("rediss:")))
        return fail_url(e, "TLS is not supported");
    if (str_starts(text, STR("redis:")))
        text = str_sub(text, 6, text.len);
    if (!str_starts(text, STR("//")))
        return fail_url(e, "no URL");
    text = str_sub(text, 2, text.len);
    authority = str_cut(&text, '/');
    if (text.len > 0 && str_to_u64(text, 1000000, &db))
        return fail_url(e, "bad database number");
    u->db = (uint32_t)db;
    return read_host(u, authority, e);
}

int redis_url_parse(struct str text, struct redis_url *ret, struct err *e)
{
    struct str options = text;
    struct str place = str_cut(&options, '?');

    *ret = (struct redis_url){0};
    if (read_location(ret, place, e))
        goto out;
    while (options.len > 0) {
        struct str value = str_cut(&options, '&');
        struct str name = str_cut(&value, '=');

        if (read_option(ret, name, value, e))
            goto out;
    }
    if (ret->user && !ret->password_file) {
        (void)fail_url(e, "a user needs password_file");
        goto out;
    }
    if (!ret->stream)
        ret->stream = mem_strdup("rollgate:trajectories");
    return 0;
out:
    redis_url_done(ret);
    return -1;
}

int redis_url_read_password(const struct redis_url *u, char **ret, struct err *e)
{
    struct buf text = {0};
    struct err why = {0};
    struct str word;
    int rc = 0;

    *ret = NULL;
    if (!u->password_file)
        return 0;
    if (file_read(u->password_file, PASSWORD_MAX, &text, &why))
        rc = err_set(e, ERR_CONFIG, "--sink redis: %s", why.text);
    word = str_trim(buf_str(&text));
    if (rc == 0 && word.len == 0)
        rc = err_set(e, ERR_CONFIG, "--sink redis: %s is empty", u->password_file);
    if (rc == 0)
        *ret = mem_strndup(word.p, word.len);
    buf_done(&text);
    return rc;
}

void redis_url_done(struct redis_url *u)
{
    free(u->host);
    free(u->path);
    free(u->stream);
    free(u->user);
    free(u->password_file);
    *u = (struct redis_url){0};
}
