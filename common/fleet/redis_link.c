/* Login and the queue of replies (redis_link.h). Commands that are given before the login ends wait
 * in `held`, so nothing reaches a wrong database or a replica. */
#include "common/fleet/redis_link.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/fleet/resp.h"
#include "common/fleet/store_conn.h"
#include "common/fleet/store_url.h"
#include "common/net/resolve.h"
#include "common/net/tls.h"
#include "common/os/file.h"
#include "common/os/loop.h"

enum {
    PASSWORD_MAX = 4096,
    QUEUE_SLACK = 1024,
    PAUSE_FIRST_MS = 20, /* before a connection after one that broke; doubles until a reply comes */
    PAUSE_MAX_MS = 1000,
    PAUSES_PER_LIMIT = 5, /* no node looks lost because its connection pauses */
};

enum redis_link_state { LINK_DOWN, LINK_PAUSED, LINK_SEEKING, LINK_LOGIN, LINK_UP };

/* What a reply of the login answers. */
enum login_step { LOGIN_AUTH, LOGIN_SEEK, LOGIN_DB, LOGIN_ROLE, LOGIN_SCRIPT };

struct awaited {
    redis_reply_fn fn;
    void *ctx;
};

struct redis_link {
    struct redis_link_options o;
    struct store_conn conn;
    struct resolve names;
    struct resolve_address primary; /* that Sentinel named */
    char primary_host[NI_MAXHOST];  /* which its certificate must name */
    enum redis_link_state state;
    VEC(enum login_step) steps; /* replies of the login that are due */
    size_t step;
    VEC(struct awaited) queue; /* from `first` on: commands without a reply */
    size_t first;
    struct buf held; /* commands that wait for the login */
    struct resp_scan scan;
    struct arena arena; /* of one reply */
    struct loop_timer limit, pause;
    unsigned pause_ms; /* 0: the last connection did not break, or had a reply */
};

static void on_limit(struct loop_timer *t);

static bool awaits_reply(const struct redis_link *l)
{
    return l->state == LINK_SEEKING || l->state == LINK_LOGIN ||
           (l->state == LINK_UP && l->queue.n > l->first);
}

/* Begins the wait for a sign of the server anew, or ends it. */
static void set_limit(struct redis_link *l)
{
    if (awaits_reply(l))
        loop_timer_set(l->o.loop, &l->limit, l->o.limit_ms, on_limit);
    else
        loop_timer_stop(l->o.loop, &l->limit);
}

static void on_limit(struct loop_timer *t)
{
    struct redis_link *l = CONTAINER_OF(t, struct redis_link, limit);
    char why[64];

    (void)snprintf(why, sizeof(why), "no answer for %u ms", l->o.limit_ms);
    store_conn_give_up(&l->conn, why);
    set_limit(l);
}

void redis_link_break(struct redis_link *l, const char *why)
{
    store_conn_give_up(&l->conn, why);
}

/* --- login --- */

static void add_step(struct redis_link *l, enum login_step step, const struct str *words, size_t n)
{
    *vec_push(&l->steps) = step;
    resp_begin_command(&l->conn.out, n);
    for (size_t i = 0; i < n; i++)
        resp_add_word(&l->conn.out, words[i]);
}

/* AUTH [USER] PASSWORD. The file is read at each login, so a new password needs no restart. */
static int add_password(struct redis_link *l, struct err *e)
{
    const struct store_url *u = l->o.url;
    struct str words[3] = {STR("AUTH")};
    struct buf text = {0};
    size_t n = 1;
    int rc;

    if (!u->password_file)
        return 0;
    rc = file_read(u->password_file, PASSWORD_MAX, &text, e);
    if (rc == 0) {
        if (u->user)
            words[n++] = str_cstr(u->user);
        words[n++] = str_trim(buf_str(&text));
        if (words[n - 1].len == 0)
            rc = err_set(e, ERR_CONFIG, "%s is empty", u->password_file);
        else
            add_step(l, LOGIN_AUTH, words, n);
    }
    buf_done(&text);
    return rc;
}

static void add_steps(struct redis_link *l)
{
    struct str role = STR("ROLE");
    char db[16];

    if (l->state == LINK_SEEKING) {
        add_step(l, LOGIN_SEEK,
                 (struct str[]){STR("SENTINEL"), STR("GET-MASTER-ADDR-BY-NAME"),
                                str_cstr(l->o.url->sentinel)},
                 3);
        return;
    }
    (void)snprintf(db, sizeof(db), "%u", (unsigned)l->o.url->db);
    add_step(l, LOGIN_DB, (struct str[]){STR("SELECT"), str_cstr(db)}, 2);
    add_step(l, LOGIN_ROLE, &role, 1);
    for (size_t i = 0; i < l->o.n_scripts; i++)
        add_step(l, LOGIN_SCRIPT, (struct str[]){STR("SCRIPT"), STR("LOAD"), l->o.scripts[i]}, 3);
}

static void on_opened(void *ctx)
{
    struct redis_link *l = ctx;
    struct err e = {0};

    vec_clear(&l->steps);
    l->step = 0;
    l->scan = (struct resp_scan){0};
    if (add_password(l, &e)) {
        store_conn_give_up(&l->conn, e.text);
        return;
    }
    add_steps(l);
    store_conn_flush(&l->conn);
    set_limit(l);
}

/* The certificate must name this host. A TLS session of another one is not resumed. */
static void use_host(struct redis_link *l, const char *host)
{
    if (strcmp(l->conn.host, host) != 0) {
        tls_session_free(l->conn.session);
        l->conn.session = NULL;
    }
    l->conn.host = host;
}

/* Leaves the Sentinel for the server that it named. */
static void connect_primary(struct redis_link *l, const struct resp *reply)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    char *host = l->primary_host, port[NI_MAXSERV], why[NI_MAXHOST + 128];
    struct str h = resp_text(reply, 0), p = resp_text(reply, 1);

    (void)snprintf(host, sizeof(l->primary_host), "%.*s", (int)h.len, h.p ? h.p : "");
    (void)snprintf(port, sizeof(port), "%.*s", (int)p.len, p.p ? p.p : "");
    if (!resp_has_items(reply, 2)) {
        (void)snprintf(why, sizeof(why), "Sentinel has no master of the name \"%s\"",
                       l->o.url->sentinel);
        store_conn_give_up(&l->conn, why);
        return;
    }
    if (getaddrinfo(host, port, &hints, &found)) {
        (void)snprintf(why, sizeof(why),
                       "Sentinel names its master %s, which is no address: set "
                       "`sentinel announce-hostnames no`",
                       host);
        store_conn_give_up(&l->conn, why);
        return;
    }
    memcpy(&l->primary.addr, found->ai_addr, found->ai_addrlen);
    l->primary.len = found->ai_addrlen;
    freeaddrinfo(found);
    l->state = LINK_LOGIN;
    store_conn_close(&l->conn);
    use_host(l, host);
    store_conn_open(&l->conn, &l->primary, 1);
}

/* The reason why the server may not be used, or NULL. A Sentinel may have no password, and ROLE may
 * be forbidden: a replica refuses writes anyway. */
static const char *find_login_fault(const struct redis_link *l, enum login_step step,
                                    const struct resp *reply, char *why, size_t size)
{
    static const char *const commands[] = {"AUTH", "SENTINEL", "SELECT", "ROLE", "SCRIPT LOAD"};

    if (step == LOGIN_ROLE && reply->kind == RESP_ARRAY && !str_eq_c(resp_text(reply, 0), "master"))
        return "the server is a replica";
    if (reply->kind != RESP_ERROR || step == LOGIN_ROLE ||
        (step == LOGIN_AUTH && l->state == LINK_SEEKING))
        return NULL;
    (void)snprintf(why, size, "%s: %.*s%s", commands[step],
                   (int)MIN_OF(reply->text.len, (size_t)400), reply->text.p,
                   step == LOGIN_SCRIPT ? " (is the server older than 7.0?)" : "");
    return why;
}

static void end_login(struct redis_link *l)
{
    l->state = LINK_UP;
    buf_add_str(&l->conn.out, buf_str(&l->held));
    buf_done(&l->held);
    store_conn_flush(&l->conn);
}

static void use_login_reply(struct redis_link *l, const struct resp *reply)
{
    enum login_step step = l->steps.at[l->step++];
    char why[512];
    const char *fault = find_login_fault(l, step, reply, why, sizeof(why));

    if (fault)
        store_conn_give_up(&l->conn, fault);
    else if (step == LOGIN_SEEK)
        connect_primary(l, reply);
    else if (l->state == LINK_LOGIN && l->step == l->steps.n)
        end_login(l);
}

/* --- replies --- */

static struct awaited take_first(struct redis_link *l)
{
    struct awaited first = l->queue.at[l->first++];

    if (l->first == l->queue.n) {
        vec_clear(&l->queue);
        l->first = 0;
    } else if (l->first >= QUEUE_SLACK && l->first * 2 > l->queue.n) {
        l->queue.n -= l->first;
        memmove(l->queue.at, l->queue.at + l->first, l->queue.n * sizeof(*l->queue.at));
        l->first = 0;
    }
    return first;
}

static void use_reply(struct redis_link *l, const struct resp *reply)
{
    struct awaited first;

    if (l->state != LINK_UP) {
        use_login_reply(l, reply);
    } else if (l->queue.n > l->first) {
        first = take_first(l);
        l->pause_ms = 0;
        first.fn(first.ctx, reply, NULL);
    } else if (l->o.on_push) {
        l->o.on_push(l->o.ctx, reply);
    } else {
        store_conn_give_up(&l->conn, "the server sent a reply to no command");
    }
}

static void on_received(void *ctx)
{
    struct redis_link *l = ctx;
    size_t used = 0;
    struct err e = {0};
    int rc = 0;

    while (l->conn.state == STORE_CONN_OPEN && used < l->conn.in.len) {
        struct str bytes = str_sub(buf_str(&l->conn.in), used, SIZE_MAX);

        rc = resp_scan_reply(&l->scan, bytes, &e);
        if (rc <= 0)
            break;
        used += l->scan.at;
        bytes = str_sub(bytes, 0, l->scan.at);
        l->scan = (struct resp_scan){0};
        use_reply(l, resp_read(&l->arena, bytes));
        arena_reset(&l->arena);
    }
    if (l->conn.state == STORE_CONN_OPEN && used > 0)
        buf_consume(&l->conn.in, used);
    if (rc < 0)
        store_conn_give_up(&l->conn, e.text);
    set_limit(l);
}

static unsigned next_pause(const struct redis_link *l)
{
    unsigned longest = MIN_OF(l->o.limit_ms / PAUSES_PER_LIMIT, (unsigned)PAUSE_MAX_MS);

    return MIN_OF(l->pause_ms ? 2 * l->pause_ms : PAUSE_FIRST_MS, longest);
}

/* Ends all commands. Those that its functions give meanwhile connect again. */
static void on_broken(void *ctx, const char *text)
{
    struct redis_link *l = ctx;
    char *why = mem_strdup(text);
    struct awaited *at = l->queue.at;
    size_t first = l->first, n = l->queue.n;

    l->state = LINK_DOWN;
    l->pause_ms = next_pause(l);
    l->queue.at = NULL;
    l->queue.n = l->queue.cap = l->first = 0;
    buf_done(&l->held);
    loop_timer_stop(l->o.loop, &l->limit);
    resolve_again(&l->names);
    for (size_t i = first; i < n; i++)
        at[i].fn(at[i].ctx, NULL, why);
    free(at);
    if (l->o.on_down)
        l->o.on_down(l->o.ctx, why);
    free(why);
}

struct buf *redis_link_begin(struct redis_link *l)
{
    return l->state == LINK_UP ? &l->conn.out : &l->held;
}

static void begin_connecting(struct redis_link *l)
{
    l->state = l->o.url->sentinel ? LINK_SEEKING : LINK_LOGIN;
    use_host(l, l->o.url->host);
    store_conn_open(&l->conn, l->names.at, l->names.n);
    set_limit(l);
}

static void on_pause_over(struct loop_timer *t)
{
    begin_connecting(CONTAINER_OF(t, struct redis_link, pause));
}

void redis_link_end(struct redis_link *l, redis_reply_fn fn, void *ctx)
{
    bool was_idle = !awaits_reply(l);

    *vec_push(&l->queue) = (struct awaited){fn, ctx};
    if (l->state == LINK_DOWN && l->pause_ms == 0) {
        begin_connecting(l);
    } else if (l->state == LINK_DOWN) {
        l->state = LINK_PAUSED;
        loop_timer_set(l->o.loop, &l->pause, l->pause_ms, on_pause_over);
    }
    store_conn_flush(&l->conn);
    if (was_idle)
        set_limit(l);
}

/* --- making --- */

static const struct store_conn_fns conn_fns = {
    .opened = on_opened, .received = on_received, .broken = on_broken};

struct redis_link *redis_link_new(const struct redis_link_options *o, struct err *e)
{
    struct redis_link *l = mem_zalloc(sizeof(*l));

    l->o = *o;
    l->conn = (struct store_conn){.loop = o->loop,
                                  .fns = &conn_fns,
                                  .ctx = l,
                                  .host = o->url->host,
                                  .fd = -1,
                                  .limit_ms = o->limit_ms};
    if (o->url->tls && tls_context_new(NULL, false, &l->conn.tls_context, e)) {
        free(l);
        return NULL;
    }
    resolve_init(&l->names, o->loop, o->url->host, o->url->port);
    return l;
}

void redis_link_free(struct redis_link *l)
{
    if (!l)
        return;
    l->o.on_down = NULL;
    store_conn_close(&l->conn);
    on_broken(l, "the gateway ends");
    loop_timer_stop(l->o.loop, &l->limit);
    loop_timer_stop(l->o.loop, &l->pause);
    resolve_done(&l->names);
    store_conn_done(&l->conn);
    tls_context_free(l->conn.tls_context);
    vec_done(&l->steps);
    vec_done(&l->queue);
    buf_done(&l->held);
    arena_done(&l->arena);
    free(l);
}
