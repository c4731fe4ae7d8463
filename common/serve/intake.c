/*
 * Reading of requests, which we do instead of libh2o. libh2o would read everything that a socket
 * has in one step, as long as the peer writes, into a buffer that it doubles and copies. So
 * whenever libh2o begins to read (at accept, and after each answer), its reading is stopped in the
 * same loop iteration (intake_stop_libh2o). Our own watch on the connection then reports when there
 * are bytes (intake_read).
 *
 * The head of a request contains its length. Memory for all of it is made at once, and libh2o is
 * called when the connection's input has all of it. If the head has no length, libh2o is called
 * with each piece. A long request is read one piece per loop iteration, so that others do not wait.
 * Arrived bytes are packed meanwhile (packed_input.h).
 *
 * The watch reports each arrival once. `unread` remembers a report that comes while a request is
 * answered, and bytes that a full read may have left in the socket. At the end of the peer's bytes
 * libh2o reads again, sees the end, and closes. If the peer has left and the rest of its request is
 * not in the socket, the present bytes are not read: thousands of leaving peers would keep the loop
 * busy for nothing.
 */
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/lending.h"
#include "common/serve/server_internal.h"

#include "common/os/loop.h"

enum {
    GROWTH = 4096,         /* bytes by which a request is usually longer than the last one */
    INTAKE_LONG = 1 << 20, /* longer requests are read in pieces */
    /* bytes of one read: making new memory costs a microsecond a kilobyte */
    INTAKE_PIECE = 128 << 10,
    /* requests longer than this use large pages, each of which is made as a whole */
    LARGE_AFTER = 2 << 20,
    /* blocks packed in one step; a piece has two, and the first may begin a page later */
    PACK_AT_ONCE = 6,
    /* free space that libh2o wants before it reads; otherwise it makes more itself */
    ROOM_AFTER = 4096,
};

/* Returns the value if the header line has this name ("name:", in lower case); p NULL: the line has
 * a different name. */
static struct str header_value(struct str line, struct str name)
{
    struct str rest = str_sub(line, name.len, SIZE_MAX);

    if (line.len == 0 || (line.p[0] | 0x20) != name.p[0] ||
        !str_eq_nocase(str_sub(line, 0, name.len), name))
        return (struct str){0};
    return str_trim(str_sub(rest, 0, str_find(rest, STR("\r"), 0)));
}

/* Returns the line that begins at *at, without its CR LF, and moves *at after it; p NULL: the line
 * is not complete. */
static struct str next_head_line(struct str input, size_t *at)
{
    const char *from = input.p + *at, *end = input.p + input.len, *feed = from;

    while (feed < end && (feed = memchr(feed, '\n', (size_t)(end - feed)))) {
        if (feed > from && feed[-1] == '\r') {
            *at = (size_t)(feed + 1 - input.p);
            return str_of(from, (size_t)(feed - 1 - from));
        }
        feed++;
    }
    return (struct str){0};
}

/* Returns the size of the request whose head begins the input; 0: the head has no length. An empty
 * line may precede it (a confirmation). */
static size_t declared_bytes(struct str input)
{
    size_t at = 0;
    uint64_t body = 0;
    bool told = false;
    struct str line = next_head_line(input, &at), value;

    while (line.p) {
        bool leads = at < 4; /* two empty lines at the front are not the end of a head */

        line = next_head_line(input, &at);
        if (line.p && line.len == 0 && !leads)
            return told ? at + (size_t)body : 0;
        value = header_value(line, STR("content-length:"));
        if (header_value(line, STR("transfer-encoding:")).p)
            return 0;
        if (value.p && (told || str_to_u64(value, SIZE_MAX / 2, &body)))
            return 0;
        told = told || value.p;
    }
    return 0;
}

static struct str input_of(const struct server_conn *c)
{
    return str_of(c->sock->input->bytes, c->sock->input->size);
}

/* Reserves memory for the rest of a request of this size, so that nothing is copied. Only address
 * space is used until bytes are read into it. Clients may claim as much of that as they may send.
 */
static void reserve_request(struct server_conn *c, size_t whole_bytes)
{
    struct server *s = c->server;
    size_t all = whole_bytes - c->sock->input->size + ROOM_AFTER;

    if (c->intake.room_bytes > 0 ||
        (s->opt.max_unfinished_bytes > 0 && s->room_bytes + all > s->opt.max_unfinished_bytes))
        return;
    s->room_bytes += all;
    c->intake.room_bytes = all;
    (void)h2o_buffer_reserve(&c->sock->input, all);
}

/* Starts packing a long request whose memory was made at once, if server_options.packs wants it for
 * this path. */
static void begin_packing(struct server_conn *c)
{
    const struct server *s = c->server;
    struct str input = input_of(c);

    packed_input_done(&c->packed);
    if (c->intake.room_bytes > 0 && s->opt.packs &&
        s->opt.packs(str_sub(input, 0, str_find(input, STR("\r\n"), 1))))
        packed_input_begin(&c->packed, c->sock->input->bytes, c->intake.whole_bytes);
}

void intake_forget(struct server_conn *c)
{
    mem_unask_large(c->intake.large_from, c->intake.large_to);
    c->intake.large_from = c->intake.large_to = NULL;
    c->server->room_bytes -= c->intake.room_bytes;
    c->intake.room_bytes = 0;
    c->intake.whole_bytes = 0;
    c->intake.had = NULL;
    loop_task_cancel(c->server->loop, &c->intake.more);
}

void intake_stop_libh2o(struct server_conn *c)
{
    if (!c->sock->_cb.read)
        return;
    c->intake.had = c->sock->_cb.read;
    h2o_socket_read_stop(c->sock);
}

void intake_resume_libh2o(struct server_conn *c)
{
    h2o_socket_cb had = c->intake.had;

    if (!had)
        return;
    intake_forget(c);
    h2o_socket_read_start(c->sock, had);
    server_run_libh2o(c->server, NULL);
}

/* Reads on after the present request was answered, after other work, or because the peer has left.
 */
static void on_more(struct loop_task *t)
{
    struct server_conn *c = CONTAINER_OF(t, struct server_conn, intake.more);

    if (!c->exchange)
        intake_read(c);
    else if (c->gone)
        exchange_left(c->exchange); /* c may be gone */
}

static void read_later(struct server_conn *c)
{
    loop_task_post(c->server->loop, &c->intake.more, on_more);
}

void intake_pass_end(struct server_conn *c)
{
    read_later(c);
}

/* Finds the length of the request and makes memory for it. A request that libh2o will refuse for
 * its length gets no memory: libh2o gets the bytes as they arrive. */
static void read_head_length(struct server_conn *c)
{
    size_t whole = declared_bytes(input_of(c));

    if (whole > c->server->conf.max_request_entity_size)
        return;
    c->intake.whole_bytes = whole;
    if (whole > c->sock->input->size)
        reserve_request(c, whole);
    if (whole > MAX_OF(c->sock->input->size, (size_t)INTAKE_LONG))
        begin_packing(c);
}

/* Packs the blocks that are complete. The request must not move: packed_input_begin is called when
 * there is memory for all of it. Bytes that were read before that are packed a few blocks at a
 * time. */
static void pack_arrived(struct server_conn *c)
{
    const struct packed_input *p = &c->packed;
    const h2o_buffer_t *in = c->sock->input;
    size_t most = PACKED_ENDS + (p->seen + PACK_AT_ONCE) * PACKED_BLOCK;

    if (!p->base)
        return;
    CHECK(p->base == in->bytes);
    packed_input_add(&c->packed, in->bytes + MIN_OF(in->size, most));
}

/* Asks for large pages for the next piece, if possible. The first access to a small page costs up
 * to 20 us in a virtual machine, for the kernel's write and for the reader. Memory whose blocks are
 * packed gets small pages, because each block frees its own. */
static void ask_large(struct server_conn *c)
{
    struct intake *in = &c->intake;
    char *base = c->sock->input->bytes, *next = base + c->sock->input->size;
    char *page = mem_large_behind(next);

    if (in->room_bytes == 0 || next < base + LARGE_AFTER || page > next + INTAKE_PIECE ||
        page + MEM_LARGE_PAGE > base + in->whole_bytes || page < in->large_to ||
        packed_input_packs(&c->packed))
        return;
    if (!mem_ask_large(page))
        return;
    in->large_from = in->large_from ? in->large_from : page;
    in->large_to = page + MEM_LARGE_PAGE;
}

/* Makes the pages for the bytes that are already in the socket. Later bytes may never come. */
static void touch_pages(const struct server_conn *c, char *room, size_t piece)
{
    int left = 0;

    if (ioctl(c->fd, FIONREAD, &left) == 0 && left > 0)
        mem_touch(room, MIN_OF(piece, (size_t)left));
}

/* Returns the number of bytes to read from the socket. If the rest of the request is known and
 * short, that is all of it and a bit more: a read that returns less shows that the socket is empty.
 * A lent connection gets at most one byte more. That is enough to see that more follows, and the
 * router judges what follows. */
static size_t piece_size(const struct server_conn *c, size_t room)
{
    size_t whole = c->intake.whole_bytes, had = c->sock->input->size;

    if (whole > INTAKE_LONG)
        return MIN_OF(whole - had, (size_t)INTAKE_PIECE);
    if (c->lent && whole > 0)
        return MIN_OF(room, whole - had + 1);
    return whole > 0 ? room : MIN_OF(room, (size_t)INTAKE_PIECE);
}

/* Reports whether the peer's end of stream follows the last bytes; the watch has reported it with
 * them. */
static bool is_at_end(const struct server_conn *c)
{
    return c->gone || c->shut || c->refused;
}

static ssize_t read_again(const struct server_conn *c, char *to, size_t size)
{
    ssize_t n;

    do {
        n = read(c->fd, to, size);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* Makes the first read of a connection. If the bytes begin a router's channel, the connection is
 * given to lent.c and is over here. */
static ssize_t first_read(struct server_conn *c, char *to, size_t size)
{
    int fds[2];
    ssize_t n = lending_first_read(c->fd, to, size, fds);

    c->spoken = n > 0;
    if (n > 0 && lent_introduced(c->server, str_of(to, (size_t)n), fds))
        return 0;
    return n;
}

/* Reads the next piece; returns like read(2). */
static ssize_t read_piece(struct server_conn *c)
{
    h2o_buffer_t **in = &c->sock->input;
    size_t whole = c->intake.whole_bytes;
    size_t rest = whole > (*in)->size ? whole - (*in)->size : 0, piece;
    size_t least = MIN_OF(rest, whole > INTAKE_LONG ? (size_t)INTAKE_PIECE : rest);
    size_t first = c->last_bytes > 0 ? MIN_OF(c->last_bytes, (size_t)INTAKE_LONG) + GROWTH : 0;
    h2o_iovec_t room = h2o_buffer_reserve(in, (whole == 0 ? first : least) + ROOM_AFTER);
    ssize_t n;

    piece = piece_size(c, room.len);
    ask_large(c);
    if (whole > INTAKE_LONG)
        touch_pages(c, room.base, piece);
    if (c->lent)
        lent_reads(c);
    n = c->spoken ? read_again(c, room.base, piece) : first_read(c, room.base, piece);
    if (n > 0)
        (*in)->size += (size_t)n;
    c->intake.unread = n > 0 && ((size_t)n == piece || is_at_end(c));
    pack_arrived(c);
    return n;
}

/* Reports whether the request will never be complete. A connection that was refused does not count:
 * its answer is being sent, and the kernel may drop it if bytes are left unread. */
static bool is_lost(const struct server_conn *c)
{
    size_t whole = c->intake.whole_bytes, had = c->sock->input->size;
    int left = 0;

    return c->gone && !c->refused && whole > had && ioctl(c->fd, FIONREAD, &left) == 0 &&
           (size_t)MAX_OF(left, 0) < whole - had;
}

/* Closes the connection as libh2o does after a read error. Frees c. */
static void close_unread(struct server_conn *c)
{
    h2o_socket_cb had = c->intake.had;

    intake_forget(c);
    had(c->sock, "the peer left within its request");
}

/* Handles a peer that left in the middle of a request. libh2o sees the same end and frees what has
 * arrived. */
static void end_reading(struct server_conn *c)
{
    if (is_lost(c))
        close_unread(c);
    else
        intake_resume_libh2o(c);
}

/* Reads one piece. Returns false if nothing came: the socket is empty, or the peer has left. */
static bool read_available(struct server_conn *c)
{
    ssize_t n = is_lost(c) ? 0 : read_piece(c);

    if (n < 0 && errno == EAGAIN) {
        if (c->lent)
            lent_rests(c);
        return false;
    }
    if (n <= 0) {
        if (c->lent)
            lent_answers(c); /* the peer reads no answer any longer */
        end_reading(c);
        return false;
    }
    server_count_input(c);
    if (c->intake.whole_bytes == 0)
        read_head_length(c);
    return true;
}

/* Reports whether the rest of the request is read in this loop iteration as well. */
static bool reads_on(const struct server_conn *c)
{
    return c->intake.unread && c->intake.whole_bytes <= INTAKE_LONG &&
           c->intake.whole_bytes > c->sock->input->size;
}

/* Lets libh2o handle the input. Frees c, perhaps. libh2o frees the socket later, in its loop. */
static void pass_input(struct server_conn *c, h2o_socket_cb had)
{
    struct server *s = c->server;
    h2o_socket_t *sock = c->sock;

    had(sock, NULL);
    if (h2o_socket_is_reading(sock) || h2o_socket_is_writing(sock))
        server_run_libh2o(s, sock); /* it answers itself, for example with "100 Continue" */
}

void intake_read(struct server_conn *c)
{
    h2o_socket_cb had;

    intake_stop_libh2o(c);
    had = c->intake.had;
    if (!had)
        return;
    if (h2o_socket_is_writing(c->sock)) { /* a "100 Continue" is being sent */
        read_later(c);
        return;
    }
    do {
        if (!read_available(c) || (c->lent && !lent_goes_on(c)))
            return;
    } while (reads_on(c));
    if (c->intake.unread)
        read_later(c); /* reading continues later unless this begins an exchange */
    if (c->lent && c->intake.whole_bytes == 0)
        return; /* the router may still take back an incomplete head */
    if (c->intake.whole_bytes <= c->sock->input->size)
        pass_input(c, had); /* c may be gone */
}
