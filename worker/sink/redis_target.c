/*
 * Implements --sink redis:URL: one stream entry per trajectory. XADD never has MAXLEN, which would
 * drop unread entries silently. Fields: key (session id "/" trajectory index), session_id,
 * trajectory_index, trajectories (their number in the session), format "msgpack", then data. An
 * entry larger than --sink-inline-max has node, file, offset and length of the spooled export
 * instead of data. Settled groups go to the stream NAME:groups. redis_reach.c uses hiredis, too.
 * It copies a command twice, and moves the rest of its bytes after each write. So it gets only what
 * precedes long data, which is then written here in pieces, without a copy.
 */
#include <errno.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/fleet/resp.h"
#include "common/net/resolve.h"
#include "common/os/file.h"
#include "common/os/loop.h"
#include "worker/sink/redis_reach.h"
#include "worker/sink/redis_url.h"
#include "worker/sink/sink_target.h"
#include "worker/sink/spooled.h"

enum {
    WINDOW_BYTES = 8 << 20,
    COPIED_MAX = 64 << 10, /* data that hiredis copies */
    PIECE_MAX = 256 << 10  /* bytes that one event writes */
};

/* Words of XADD before its fields; of a trajectory's longest XADD. */
enum { XADD_WORDS = 3, ENTRY_WORDS = 32 };

struct redis {
    struct target *target;
    struct redis_url url;
    struct resolve names; /* addresses of url.host; unused with url.path */
    size_t at;            /* index of the address that is in use or tried */
    struct buf refused;   /* errors of the addresses tried before */
    char *password;       /* NULL: none */
    char node[256];       /* name of this host, on which pointed files are */
    redisAsyncContext *ac;
    struct loop_timer stall;
    char *session_id;     /* session whose trajectories `acked` counts */
    size_t next, acked;   /* trajectories passed to hiredis; trajectories that Redis acknowledged */
    uint64_t window;      /* bytes passed to hiredis but not acknowledged */
    struct str data, end; /* of the last entry: long data not yet written, and its end */
};

/* --- the connection on our loop --- */

struct redis_wire {
    struct loop *loop;
    struct loop_io io;
    redisAsyncContext *ac;
    unsigned mask;
    bool drained; /* hiredis has written all that it has */
};

static void on_stall(struct loop_timer *t);
static void write_data(struct redis *r);

/* Begins the time for an answer anew. */
static void restart_stall(struct redis *r)
{
    loop_timer_set(r->target->env->loop, &r->stall, r->target->env->stall_ms, on_stall);
}

/* Handles one event per loop iteration, since either call may free the wire. The loop reports the
 * other event again. Space for more bytes shows that the other side reads a long entry. */
static void on_wire(struct loop_io *io, unsigned events)
{
    struct redis_wire *w = CONTAINER_OF(io, struct redis_wire, io);
    struct redis *r = w->ac->data;

    if ((events & LOOP_OUT) && !(events & (LOOP_ERR | LOOP_HUP))) {
        if (loop_timer_active(&r->stall))
            restart_stall(r);
        if (w->drained && r->data.len > 0)
            write_data(r);
        else
            redisAsyncHandleWrite(w->ac);
    } else {
        redisAsyncHandleRead(w->ac);
    }
}

/* Sets the events that hiredis waits for. */
static void wire_set_mask(struct redis_wire *w, unsigned mask)
{
    struct err e;

    if (mask == w->mask)
        return;
    w->mask = mask;
    if (w->io.mask)
        loop_mod(w->loop, &w->io, mask | LOOP_LEVEL);
    else if (loop_add(w->loop, &w->io, w->ac->c.fd, mask | LOOP_LEVEL, on_wire, &e))
        w->mask = 0; /* no event will arrive; the stall timer ends the connection */
}

static void wire_add_read(void *ctx)
{
    struct redis_wire *w = ctx;

    wire_set_mask(w, w->mask | LOOP_IN);
}

static void wire_del_read(void *ctx)
{
    struct redis_wire *w = ctx;

    wire_set_mask(w, w->mask & ~LOOP_IN);
}

static void wire_add_write(void *ctx)
{
    struct redis_wire *w = ctx;

    w->drained = false;
    wire_set_mask(w, w->mask | LOOP_OUT);
}

static void wire_del_write(void *ctx)
{
    struct redis_wire *w = ctx;
    const struct redis *r = w->ac->data;

    w->drained = true;
    if (r->data.len == 0)
        wire_set_mask(w, w->mask & ~LOOP_OUT);
}

static void wire_free(void *ctx)
{
    struct redis_wire *w = ctx;

    loop_del(w->loop, &w->io);
    free(w);
}

/* Attaches a hiredis connection to the loop. hiredis frees the wire with the connection. */
static void wire_new(struct loop *loop, redisAsyncContext *ac)
{
    struct redis_wire *w = mem_zalloc(sizeof(*w));

    w->loop = loop;
    w->ac = ac;
    ac->ev.data = w;
    ac->ev.addRead = wire_add_read;
    ac->ev.delRead = wire_del_read;
    ac->ev.addWrite = wire_add_write;
    ac->ev.delWrite = wire_del_write;
    ac->ev.cleanup = wire_free;
}

/* --- sending --- */

/* Closes the connection. Its later callbacks are ignored. */
static void hang_up(struct redis *r)
{
    redisAsyncContext *ac = r->ac;

    loop_timer_stop(r->target->env->loop, &r->stall);
    r->ac = NULL;
    r->data = r->end = (struct str){0};
    if (ac)
        redisAsyncFree(ac);
}

/* Closes the connection and reports the error. The file is sent again later, from the first entry
 * that was not acknowledged. */
static void fail_file(struct redis *r, const char *why)
{
    struct err e = {0};

    (void)err_set(&e, ERR_IO, "redis: %s", why && *why ? why : "connection lost");
    hang_up(r);
    if (r->url.host)
        resolve_again(&r->names);
    if (r->target->sending)
        target_done(r->target, &e);
}

static int dial_next(struct redis *r);
static void send_open(struct redis *r);

/* Records why the current address failed, and moves to the next. */
static void record_refusal(struct redis *r, const char *why)
{
    const struct resolve_address *a = &r->names.at[r->at];
    char text[RESOLVE_TEXT];

    resolve_text((const struct sockaddr *)&a->addr, a->len, text);
    buf_printf(&r->refused, "%s%s: %s", r->refused.len ? "; " : "", text, why);
    r->at++;
}

/* Tries the next address after one failed. */
static void try_next(struct redis *r, const char *why)
{
    record_refusal(r, why);
    if (r->target->sending && dial_next(r) == 0)
        send_open(r);
}

/* Handles a timeout. If the address never connected, tries the next one. Otherwise fails. */
static void on_stall(struct loop_timer *t)
{
    struct redis *r = CONTAINER_OF(t, struct redis, stall);

    if (!r->url.path && r->ac && !(r->ac->c.flags & REDIS_CONNECTED)) {
        hang_up(r);
        try_next(r, "no answer");
        return;
    }
    fail_file(r, "no answer");
}

/* Handles the end of a connection attempt. If it failed, tries the next address. */
static void on_connected(const redisAsyncContext *ac, int status)
{
    struct redis *r = ac->data;

    if (r->ac != ac)
        return;
    if (status == REDIS_OK) {
        buf_clear(&r->refused);
        return;
    }
    r->ac = NULL; /* hiredis frees it */
    if (r->url.path) {
        fail_file(r, ac->errstr);
        return;
    }
    try_next(r, ac->errstr);
}

/* Handles that the other side closed the connection. */
static void on_disconnected(const redisAsyncContext *ac, int status)
{
    struct redis *r = ac->data;

    (void)status;
    if (r->ac != ac)
        return;
    r->ac = NULL;
    fail_file(r, ac->errstr);
}

/* Returns true if the reply is no error. Otherwise fails the file, which closes the connection. */
static bool is_accepted(struct redis *r, redisAsyncContext *ac, const redisReply *reply)
{
    if (r->ac != ac)
        return false;
    if (reply && reply->type != REDIS_REPLY_ERROR)
        return true;
    fail_file(r, reply ? reply->str : ac->errstr);
    return false;
}

static void on_prepared(redisAsyncContext *ac, void *reply, void *ctx)
{
    (void)is_accepted(ctx, ac, reply);
}

static void pump_entries(struct redis *r);

/* Reports whether the reply is an entry's id "MILLISECONDS-NUMBER", which XADD returns on
 * success. */
static bool is_entry_id(const redisReply *reply)
{
    static const char digits[] = "0123456789";
    struct str id = reply->type == REDIS_REPLY_STRING ? str_of(reply->str, reply->len) : STR("");
    size_t ms = id.len ? strspn(id.p, digits) : 0;
    size_t number = ms > 0 && id.p[ms] == '-' ? strspn(id.p + ms + 1, digits) : 0;

    return number > 0 && ms + 1 + number == id.len;
}

/* Handles the reply to an XADD: counts the entry and sends more. */
static void on_added(redisAsyncContext *ac, void *reply, void *ctx)
{
    struct redis *r = ctx;

    if (!is_accepted(r, ac, reply))
        return;
    if (!is_entry_id(reply)) {
        fail_file(r, "XADD was not answered with an id");
        return;
    }
    r->window -= MIN_OF(spooled_piece(r->target->open, r->acked).len, r->target->env->inline_max);
    r->acked++;
    restart_stall(r);
    pump_entries(r);
}

/* Sends AUTH and SELECT before the first entry. Replies come in order, so entries need not wait for
 * them. */
static void send_preamble(struct redis *r)
{
    char db[16];

    if (r->password && r->url.user)
        (void)redisAsyncCommand(r->ac, on_prepared, r, "AUTH %s %s", r->url.user, r->password);
    else if (r->password)
        (void)redisAsyncCommand(r->ac, on_prepared, r, "AUTH %s", r->password);
    if (r->url.db == 0)
        return;
    (void)snprintf(db, sizeof(db), "%u", r->url.db);
    (void)redisAsyncCommand(r->ac, on_prepared, r, "SELECT %s", db);
}

/* Starts to connect to an address. Returns NULL if its text form cannot be made. */
static redisAsyncContext *connect_to(const struct resolve_address *a, uint16_t port)
{
    char ip[128];

    if (getnameinfo((const struct sockaddr *)&a->addr, a->len, ip, sizeof(ip), NULL, 0,
                    NI_NUMERICHOST))
        return NULL;
    return redisAsyncConnect(ip, port);
}

/* Starts to connect to the socket's path, or to the first address from r->at on that accepts an
 * attempt. Returns NULL if all fail at once. */
static redisAsyncContext *connect_next(struct redis *r)
{
    while (r->url.path || r->at < r->names.n) {
        redisAsyncContext *ac = r->url.path ? redisAsyncConnectUnix(r->url.path)
                                            : connect_to(&r->names.at[r->at], r->url.port);

        if (ac && !ac->err)
            return ac;
        if (r->url.path)
            buf_puts(&r->refused, ac ? ac->errstr : "no memory");
        else
            record_refusal(r, ac ? ac->errstr : "no address");
        if (ac)
            redisAsyncFree(ac);
        if (r->url.path)
            break;
    }
    return NULL;
}

/* Connects to the next usable address and sends the preamble. Returns -1 if there is none; then the
 * file has failed. */
static int dial_next(struct redis *r)
{
    redisAsyncContext *ac = connect_next(r);

    if (!ac) {
        if (r->refused.len == 0)
            buf_puts(&r->refused, "the host's name has no address");
        buf_add_c(&r->refused, 0);
        fail_file(r, r->refused.p);
        return -1;
    }
    r->ac = ac;
    ac->data = r;
    wire_new(r->target->env->loop, ac);
    (void)redisAsyncSetConnectCallback(ac, on_connected);
    (void)redisAsyncSetDisconnectCallback(ac, on_disconnected);
    send_preamble(r);
    return 0;
}

/* Links the file under a name of its own in pointed/, for the entry's reader. An export made again
 * after a crash gets a different name (by inode), so old entries keep their file. */
static int link_pointed(const struct redis *r, struct buf *ret, struct err *e)
{
    const struct parcel *p = r->target->first;
    struct buf from = {0};
    struct stat st;
    int rc;

    target_folder(r->target, p->place, &from);
    buf_printf(ret, "%s/pointed", from.p);
    (void)mkdir(ret->p, 0700);
    buf_printf(&from, "/%s.msgpack", p->session_id);
    rc = stat(from.p, &st);
    if (rc == 0) {
        buf_printf(ret, "/%s-%llx.msgpack", p->session_id, (unsigned long long)st.st_ino);
        rc = link(from.p, ret->p) && errno != EEXIST ? -1 : 0;
    }
    if (rc)
        (void)err_sys(e, ERR_IO, "cannot link a large export to %s", ret->p);
    buf_done(&from);
    return rc;
}

/* The words of an XADD. */
struct stream_entry {
    const char **argv;
    size_t *len;
    int n;
    struct str data; /* one more word, in t->open; absent: none */
};

/* Makes an entry for at most n words, in the arena. */
static struct stream_entry new_entry(struct arena *a, size_t n)
{
    return (struct stream_entry){.argv = arena_calloc(a, n, sizeof(char *)),
                                 .len = arena_calloc(a, n, sizeof(size_t))};
}

static void add_word(struct stream_entry *en, struct str s)
{
    en->argv[en->n] = s.p;
    en->len[en->n++] = s.len;
}

static void put_field(struct stream_entry *en, const char *name, const char *value)
{
    add_word(en, str_cstr(name));
    add_word(en, str_cstr(value));
}

static const char *const GROUP_FIELDS[] = {"group", "rollout", "attempt", "group_size"};

/* Adds the session's group, rollout and attempt, if the export has them. The strings are in `ret`,
 * which must outlive the entry. */
static void add_group_fields(struct stream_entry *en, struct str envelope,
                             struct buf ret[ARRAY_LEN(GROUP_FIELDS)])
{
    for (size_t i = 0; i < ARRAY_LEN(GROUP_FIELDS); i++) {
        if (!pieces_note(envelope, GROUP_FIELDS[i], &ret[i]))
            continue;
        add_word(en, str_cstr(GROUP_FIELDS[i]));
        add_word(en, buf_str(&ret[i]));
    }
}

/* Passes the entry to hiredis, which copies it, but for long data. */
static int send_entry(struct redis *r, const struct stream_entry *en, struct err *e)
{
    struct buf command = {0};
    int rc;

    resp_begin_command(&command, (size_t)en->n + (en->data.p != NULL));
    for (int i = 0; i < en->n; i++)
        resp_add_word(&command, str_of(en->argv[i], en->len[i]));
    if (en->data.len > COPIED_MAX) {
        buf_printf(&command, "$%zu\r\n", en->data.len);
        r->data = en->data;
        r->end = STR("\r\n");
    } else if (en->data.p) {
        resp_add_word(&command, en->data);
    }
    rc = redisAsyncFormattedCommand(r->ac, on_added, r, command.p, command.len);
    buf_done(&command);
    if (rc == REDIS_OK)
        return 0;
    return err_set(e, ERR_IO, "XADD was not sent: %s",
                   r->ac->errstr[0] ? r->ac->errstr : "the connection is closing");
}

/* Writes a piece of the data that hiredis has not got, and passes the next entry after the last. */
static void write_data(struct redis *r)
{
    struct redis_wire *w = r->ac->ev.data;
    ssize_t n = send(r->ac->c.fd, r->data.p, MIN_OF(r->data.len, (size_t)PIECE_MAX), MSG_NOSIGNAL);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fail_file(r, strerror(errno));
        return;
    }
    r->data = str_sub(r->data, (size_t)n, SIZE_MAX);
    if (r->data.len == 0)
        r->data = r->end, r->end = (struct str){0};
    if (r->data.len > 0)
        return;
    wire_set_mask(w, w->mask & ~LOOP_OUT);
    pump_entries(r);
}

/* Sends a settled group: each member of its object becomes a field. Values that are not strings are
 * sent as JSON. */
static int add_group(struct redis *r, struct err *e)
{
    const struct target *t = r->target;
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = json_parse(&a, t->open->bytes, &v, e);
    size_t n = rc == 0 && json_is(v, JSON_OBJECT) ? v->n : 0;
    struct stream_entry en = new_entry(&a, XADD_WORDS + 2 * n);

    put_field(&en, "XADD", arena_printf(&a, "%s:groups", r->url.stream).p);
    add_word(&en, STR("*"));
    for (size_t i = 0; i < n; i++) {
        struct buf text = {0};

        add_word(&en, json_string(&v->members[i].key));
        if (!json_is(&v->members[i].value, JSON_STRING)) {
            json_write(&text, &v->members[i].value);
            add_word(&en, arena_str(&a, buf_str(&text)));
            buf_done(&text);
        } else {
            add_word(&en, json_string(&v->members[i].value));
        }
    }
    if (rc == 0)
        rc = send_entry(r, &en, e);
    arena_done(&a);
    return rc;
}

/* Sends trajectory i. */
static int add_trajectory(struct redis *r, size_t i, struct err *e)
{
    const struct target *t = r->target;
    struct str piece = spooled_piece(t->open, i);
    struct buf key = {0}, file = {0}, uid = {0}, notes[ARRAY_LEN(GROUP_FIELDS)] = {0};
    char index[24], total[24], offset[24], length[24];
    struct arena a = {0};
    struct stream_entry en = new_entry(&a, ENTRY_WORDS);
    int rc = 0;

    buf_printf(&key, "%s/%zu", t->first->session_id, i);
    (void)snprintf(index, sizeof(index), "%zu", i);
    (void)snprintf(total, sizeof(total), "%zu", t->open->pieces.n);
    (void)snprintf(offset, sizeof(offset), "%zu", t->open->pieces.at[i].start);
    (void)snprintf(length, sizeof(length), "%zu", piece.len);
    put_field(&en, "XADD", r->url.stream);
    add_word(&en, STR("*"));
    put_field(&en, "key", key.p);
    put_field(&en, "session_id", t->first->session_id);
    put_field(&en, "trajectory_index", index);
    put_field(&en, "trajectories", total);
    put_field(&en, "format", "msgpack");
    add_group_fields(&en, t->open->bytes, notes);
    if (pieces_note(piece, "uid", &uid)) {
        add_word(&en, STR("uid"));
        add_word(&en, buf_str(&uid));
    }
    if (piece.len <= t->env->inline_max) {
        add_word(&en, STR("data"));
        en.data = piece;
    } else if (link_pointed(r, &file, e) == 0) {
        put_field(&en, "node", r->node);
        put_field(&en, "file", file.p);
        put_field(&en, "offset", offset);
        put_field(&en, "length", length);
    } else {
        rc = -1;
    }
    if (rc == 0)
        rc = send_entry(r, &en, e);
    arena_done(&a);
    for (size_t k = 0; k < ARRAY_LEN(GROUP_FIELDS); k++)
        buf_done(&notes[k]);
    buf_done(&key);
    buf_done(&file);
    buf_done(&uid);
    return rc;
}

/* Sends entries until WINDOW_BYTES are unacknowledged, or one has long data. After the last reply,
 * the file is done. */
static void pump_entries(struct redis *r)
{
    struct target *t = r->target;
    struct err e;

    while (r->next < t->open->pieces.n && r->data.len == 0 &&
           (r->window < WINDOW_BYTES || r->next == r->acked)) {
        if (t->first->group ? add_group(r, &e) : add_trajectory(r, r->next, &e)) {
            fail_file(r, e.text);
            return;
        }
        r->window += MIN_OF(spooled_piece(t->open, r->next).len, t->env->inline_max);
        r->next++;
    }
    if (r->acked < t->open->pieces.n)
        return;
    loop_timer_stop(t->env->loop, &r->stall);
    free(r->session_id);
    r->session_id = NULL;
    target_done(t, NULL);
}

/* Sends the open file from the first entry that was not acknowledged. */
static void send_open(struct redis *r)
{
    r->next = r->acked;
    r->window = 0;
    r->data = r->end = (struct str){0};
    restart_stall(r);
    pump_entries(r);
}

/* Sends the first file. If this file was begun before, continues after its last acknowledged
 * entry. */
static void redis_send(struct target *t, const char *path)
{
    struct redis *r = t->state;

    (void)path;
    if (!r->session_id || strcmp(r->session_id, t->first->session_id) != 0) {
        free(r->session_id);
        r->session_id = mem_strdup(t->first->session_id);
        r->acked = 0;
    }
    if (!r->ac) {
        r->at = 0;
        buf_clear(&r->refused);
    }
    if (r->ac || dial_next(r) == 0)
        send_open(r);
}

/* --- opening --- */

/* Closes the target. No callback is called later. */
static void redis_close(struct target *t)
{
    struct redis *r = t->state;

    t->sending = false;
    hang_up(r);
    if (r->url.host)
        resolve_done(&r->names);
    redis_url_done(&r->url);
    buf_done(&r->refused);
    free(r->password);
    free(r->session_id);
    free(r);
}

/* Checks the setting without connecting. */
static int redis_check(struct str spec, struct err *e)
{
    struct redis_url url;
    char *password;
    int rc;

    if (redis_url_parse(spec, &url, e))
        return -1;
    rc = redis_url_read_password(&url, &password, e);
    redis_url_done(&url);
    free(password);
    return rc;
}

/* Opens the target. The first file opens the connection. */
static int redis_open(struct target *t, struct str spec, struct err *e)
{
    struct redis *r = mem_zalloc(sizeof(*r));

    r->target = t;
    if (redis_url_parse(spec, &r->url, e)) {
        free(r);
        return -1;
    }
    t->state = r;
    (void)gethostname(r->node, sizeof(r->node) - 1);
    if (r->url.host)
        resolve_init(&r->names, t->env->loop, r->url.host, r->url.port);
    if (redis_url_read_password(&r->url, &r->password, e) == 0)
        return 0;
    redis_close(t);
    return -1;
}

const struct target_kind target_redis = {.name = "redis",
                                         .groups = true,
                                         .check = redis_check,
                                         .reach = redis_reach,
                                         .open = redis_open,
                                         .send = redis_send,
                                         .close = redis_close};
