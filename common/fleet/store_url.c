/* Cuts the text from the left: scheme, user, host, port, database, then options by "&". Values are
 * taken without escapes, so a path is spelt as the shell passed it. */
#include "common/fleet/store_url.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/url.h"

enum { REDIS_PORT = 6379, SENTINEL_PORT = 26379, NAME_MAX_LEN = 63 };

static const char FORM[] =
    "redis://[USER@]HOST[:PORT][/DB][?name=NAME&password_file=FILE&sentinel=MASTER]";

/* Fails with `fault` about `value`. */
static int refuse(struct err *e, const char *fault, struct str value)
{
    return err_set(e, ERR_CONFIG, "the store's URL: %s: \"%.*s\"; the form is %s", fault,
                   (int)(value.len > 100 ? 100 : value.len), value.p ? value.p : "", FORM);
}

/* Fails without showing the value, which may be a password. */
static int refuse_unseen(struct err *e, const char *fault)
{
    return err_set(e, ERR_CONFIG, "the store's URL: %s; the form is %s", fault, FORM);
}

static int refuse_password(struct err *e)
{
    return err_set(e, ERR_CONFIG,
                   "the store's URL holds a password, which other users of the machine can "
                   "read; write it to a file and name that with password_file");
}

static bool has_only(struct str text, const char *bytes)
{
    for (size_t i = 0; i < text.len; i++)
        if (!text.p[i] || !strchr(bytes, text.p[i]))
            return false;
    return true;
}

/* USER@, if there is one. */
static int read_user(struct store_url *u, struct str *text, struct err *e)
{
    struct str user;

    if (str_find(*text, STR("@"), 0) == SIZE_MAX)
        return 0;
    user = str_cut(text, '@');
    if (str_find(user, STR(":"), 0) != SIZE_MAX || str_find(*text, STR("@"), 0) != SIZE_MAX)
        return refuse_password(e);
    if (user.len == 0)
        return refuse_unseen(e, "the user before @ is empty");
    u->user = mem_strndup(user.p, user.len);
    return 0;
}

/* HOST[:PORT] or [ADDRESS][:PORT]. u->port stays 0 without a port. */
static int read_host(struct store_url *u, struct str text, struct err *e)
{
    struct str host;
    const char *fault = url_read_host(text, &host, &u->port);

    if (fault)
        return refuse_unseen(e, fault);
    u->host = mem_strndup(host.p, host.len);
    return 0;
}

/* One NAME=VALUE. */
static int read_option(struct store_url *u, struct str name, struct str value, struct err *e)
{
    char **field = str_eq_c(name, "name")            ? &u->name
                   : str_eq_c(name, "password_file") ? &u->password_file
                   : str_eq_c(name, "sentinel")      ? &u->sentinel
                                                     : NULL;

    if (!field)
        return refuse(e, "unknown option", name);
    if (*field)
        return refuse(e, "an option is given twice", name);
    if (value.len == 0)
        return refuse(e, "an option has no value", name);
    if (field == &u->name &&
        (value.len > NAME_MAX_LEN || !has_only(value, "abcdefghijklmnopqrstuvwxyz0123456789-")))
        return refuse(e, "name has not 1 to 63 of a-z, 0-9 and -", value);
    *field = mem_strndup(value.p, value.len);
    return 0;
}

static int read_options(struct store_url *u, struct str options, struct err *e)
{
    while (options.len > 0) {
        struct str value = str_cut(&options, '&');
        struct str name = str_cut(&value, '=');

        if (read_option(u, name, value, e))
            return -1;
    }
    if (!u->name)
        u->name = mem_strdup("rollgate");
    if (u->port == 0)
        u->port = u->sentinel ? SENTINEL_PORT : REDIS_PORT;
    if (u->user && !u->password_file)
        return refuse_unseen(e, "a user needs password_file");
    return 0;
}

static int read_url(struct store_url *u, struct str text, struct err *e)
{
    struct str options = text, db, rest;
    uint64_t number = 0;

    rest = str_cut(&options, '?');
    if (str_find(rest, STR(","), 0) != SIZE_MAX || str_find(options, STR(",redis"), 0) != SIZE_MAX)
        return refuse_unseen(e, "it has a comma, but a fleet has one server");
    if (str_find(str_sub(options, 0, str_find(options, STR("="), 0)), STR("@"), 0) != SIZE_MAX)
        return refuse_password(e); /* one that has a question mark */
    u->tls = str_starts(rest, STR("rediss://"));
    if (!u->tls && !str_starts(rest, STR("redis://")))
        return refuse(e, "it begins with neither redis:// nor rediss://", STR(""));
    rest = str_sub(rest, u->tls ? 9 : 8, SIZE_MAX);
    if (read_user(u, &rest, e))
        return -1;
    db = rest;
    rest = str_cut(&db, '/');
    if (db.len > 0 && str_to_u64(db, 1000000, &number))
        return refuse_unseen(e, "the database is no number from 0 to 1000000");
    u->db = (uint32_t)number;
    return read_host(u, rest, e) || read_options(u, options, e) ? -1 : 0;
}

int store_url_parse(struct str text, struct store_url *ret, struct err *e)
{
    *ret = (struct store_url){0};
    if (read_url(ret, text, e) == 0)
        return 0;
    store_url_done(ret);
    return -1;
}

void store_url_done(struct store_url *u)
{
    free(u->host);
    free(u->name);
    free(u->user);
    free(u->password_file);
    free(u->sentinel);
    *u = (struct store_url){0};
}
