/* One blocking visit (redis_reach.h): AUTH, SELECT, then two commands that change nothing. XADD of
 * an id that no entry can have fails as each XADD would: without the right to it, on a replica,
 * without memory. XTRIM to a length that no stream has fails on a key that is no stream. */
#include "worker/sink/redis_reach.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "worker/sink/redis_url.h"

enum { LIMIT_S = 3 };

/* Sends a command. `passed` (NULL: none): the first word of an error that does not count. */
static int ask(redisContext *c, int n, const char **words, const char *passed, struct err *e)
{
    redisReply *r;
    int rc = 0;

    errno = 0;
    r = redisCommandArgv(c, n, words, NULL);
    if (!r && errno == EAGAIN)
        return err_set(e, ERR_IO, "%s: no answer within %d s", words[0], LIMIT_S);
    if (!r)
        return err_set(e, ERR_IO, "%s: %s", words[0], c->errstr);
    if (r->type == REDIS_REPLY_ERROR && !(passed && str_starts(str_cstr(r->str), str_cstr(passed))))
        rc = err_set(e, ERR_IO, "%s: %s", words[0], r->str);
    freeReplyObject(r);
    return rc;
}

static int visit(redisContext *c, const struct redis_url *u, const char *password, struct err *e)
{
    const char *user_login[] = {"AUTH", u->user, password}, *login[] = {"AUTH", password};
    const char *add[] = {"XADD", u->stream, "0-0", "key", ""};
    const char *trim[] = {"XTRIM", u->stream, "MAXLEN", "9223372036854775807"};
    char db[16];
    const char *choice[] = {"SELECT", db};

    (void)snprintf(db, sizeof(db), "%u", u->db);
    if (password && (u->user ? ask(c, 3, user_login, NULL, e) : ask(c, 2, login, NULL, e)))
        return -1;
    if (u->db > 0 && ask(c, 2, choice, NULL, e))
        return -1;
    if (ask(c, 5, add, "ERR ", e)) /* "The ID specified must be greater than 0-0" */
        return -1;
    return ask(c, 4, trim, "NOPERM ", e); /* who may add need not be allowed to trim */
}

int redis_reach(struct str spec, struct err *e)
{
    const struct timeval limit = {.tv_sec = LIMIT_S};
    redisContext *c = NULL;
    char *password = NULL;
    struct redis_url u;
    int rc;

    if (redis_url_parse(spec, &u, e))
        return -1;
    rc = redis_url_read_password(&u, &password, e);
    if (rc == 0)
        c = u.path ? redisConnectUnixWithTimeout(u.path, limit)
                   : redisConnectWithTimeout(u.host, u.port, limit);
    if (rc == 0 && (!c || c->err))
        rc = err_set(e, ERR_IO, "%s", c ? c->errstr : "no memory");
    if (rc == 0) {
        (void)redisSetTimeout(c, limit);
        rc = visit(c, &u, password, e);
    }
    redisFree(c);
    free(password);
    redis_url_done(&u);
    return rc;
}
