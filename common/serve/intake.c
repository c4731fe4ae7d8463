/*
 * Requests come into room of their own length. libh2o reads all that a socket has in one step, into
 * room that it doubles when it is full, copying what is there. So the first bytes of a request are
 * read here, before libh2o sees that there are any: their head tells how long it is, and room is
 * made for all of it, into which libh2o reads the rest.
 *
 * Of many megabytes one step takes longer than others should wait. So of a long request reading is
 * taken over from libh2o, a piece a turn; with the last byte it goes back, and libh2o finds all in
 * the connection's input. What was read for nothing, because the peer leaves, goes back to the
 * system in pieces, too: all of it at once takes as long. What has come is packed meanwhile
 * (packed_input.h).
 */
#include <errno.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/serve/server_internal.h"

#include "common/os/loop.h"

enum {
    FIRST_ROOM = 4096,        /* for the first bytes of a request, at least */
    INTAKE_LONG = 1 << 20,    /* we take over requests of more, */
    INTAKE_LEAST = 64 << 10,  /* or, if the head came in parts, when so much has come */
    INTAKE_PIECE = 128 << 10, /* read at once: new memory costs a microsecond a kilobyte */
    PACK_AT_ONCE = 6,         /* blocks; a piece is two, and the first may begin a page later */
    FADE_PIECE = 1 << 20,     /* given back at once: half a microsecond a kilobyte */
    ROOM_AFTER = 4096,        /* libh2o wants so much before it reads, and makes it otherwise */
};

/* The value of a header line as `name` has it ("\r\nname:"), p NULL: this is another line. */
static struct str value_of(struct str line, struct str name)
{
    struct str rest = str_sub(line, name.len, SIZE_MAX);

    if (!str_eq_nocase(str_sub(line, 0, name.len), name))
        return (struct str){0};
    return str_trim(str_sub(rest, 0, str_find(rest, STR("\r"), 0)));
}

/* Bytes of the request whose head the input begins with; 0: they are not told. */
static size_t told_bytes(struct str input)
{
    size_t end = str_find(input, STR("\r\n\r\n"), 2), at = 0, told = 0;
    struct str head = str_sub(input, 0, end);

    if (end == SIZE_MAX)
        return 0;
    for (; (at = str_find(head, STR("\r\n"), at)) != SIZE_MAX; at++) {
        struct str line = str_sub(head, at, SIZE_MAX);
        struct str value = value_of(line, STR("\r\ncontent-length:"));
        uint64_t n;

        if (value_of(line, STR("\r\ntransfer-encoding:")).p)
            return 0;
        if (value.p && (told || str_to_u64(value, SIZE_MAX / 2, &n)))
            return 0;
        if (value.p)
            told = end + 4 + (size_t)n;
    }
    return told;
}

static struct str input_of(const struct server_conn *c)
{
    return str_of(c->sock->input->bytes, c->sock->input->size);
}

/* For the rest of so long a request at once, so that nothing is copied. It is address space only
 * until it is read into; of that, too, clients may claim as much as they may send. */
static void make_room(struct server_conn *c, size_t whole_bytes)
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

/* In its place it stays. */
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
    c->server->room_bytes -= c->intake.room_bytes;
    c->intake.room_bytes = 0;
    c->intake.whole_bytes = 0;
    c->intake.left = false;
    loop_task_cancel(c->server->loop, &c->intake.more);
}

static bool take_over(struct server_conn *c)
{
    h2o_socket_t *sock = c->sock;
    size_t max = c->server->conf.max_request_entity_size, had = sock->input->size;
    size_t whole = told_bytes(input_of(c));

    if (whole <= MAX_OF(had, (size_t)INTAKE_LONG) || whole > max || !sock->_cb.read)
        return false;
    c->intake.whole_bytes = whole;
    c->intake.had = sock->_cb.read;
    h2o_socket_read_stop(sock);
    make_room(c, whole);
    begin_packing(c);
    return true;
}

static void on_more(struct loop_task *t)
{
    intake_read(CONTAINER_OF(t, struct server_conn, intake.more));
}

/* The first bytes of a request, while libh2o has not looked. c may be gone then. */
static void begin(struct server_conn *c)
{
    h2o_socket_t *sock = c->sock;
    h2o_iovec_t room;
    size_t whole;
    ssize_t n;

    if (c->refused || c->intake.room_bytes > 0 || !sock->_cb.read)
        return;
    room = h2o_buffer_reserve(&sock->input, FIRST_ROOM);
    do {
        n = read(c->fd, room.base, room.len);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return; /* libh2o sees the same */
    sock->input->size += (size_t)n;
    server_count_input(c);
    if (take_over(c)) {
        loop_task_post(c->server->loop, &c->intake.more, on_more);
        return;
    }
    whole = told_bytes(input_of(c));
    if (whole > sock->input->size && whole <= c->server->conf.max_request_entity_size)
        make_room(c, whole);
    sock->_cb.read(sock, NULL); /* c may be gone */
}

void intake_give_back(struct server_conn *c)
{
    if (c->intake.whole_bytes == 0)
        return;
    intake_forget(c);
    h2o_socket_read_start(c->sock, c->intake.had);
}

/* Where it stands it stays: packed_input_begin is called once there is room for all of it. What
 * came before we took over is packed some blocks at a time. */
static void pack(struct server_conn *c)
{
    const struct packed_input *p = &c->packed;
    const h2o_buffer_t *in = c->sock->input;
    size_t most = PACKED_ENDS + (p->seen + PACK_AT_ONCE) * PACKED_BLOCK;

    if (!p->base)
        return;
    CHECK(p->base == in->bytes);
    packed_input_add(&c->packed, in->bytes + MIN_OF(in->size, most));
}

static ssize_t read_piece(struct server_conn *c)
{
    h2o_buffer_t **in = &c->sock->input;
    size_t piece = MIN_OF(c->intake.whole_bytes - (*in)->size, (size_t)INTAKE_PIECE);
    h2o_iovec_t room = h2o_buffer_reserve(in, piece + ROOM_AFTER);
    ssize_t n;

    do {
        n = read(c->fd, room.base, piece);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        (*in)->size += (size_t)n;
    pack(c);
    return n;
}

/* Gives the pages behind the first `size` bytes of the input back. Nobody reads them again. */
static void cut_input(h2o_buffer_t *in, size_t size)
{
    mem_drop_pages(in->bytes + size, in->size - size);
    in->size = size;
}

/* The peer left in the middle. libh2o sees the same, and frees what is there by then. */
static void fade(struct server_conn *c)
{
    h2o_buffer_t *in = c->sock->input;

    c->intake.left = true;
    if (in->size <= FADE_PIECE) {
        intake_give_back(c);
        return;
    }
    cut_input(in, in->size - FADE_PIECE);
    server_count_input(c);
    loop_task_post(c->server->loop, &c->intake.more, on_more);
}

void intake_read(struct server_conn *c)
{
    ssize_t n;

    if (c->intake.whole_bytes == 0 && c->sock->input->size < INTAKE_LEAST) {
        begin(c);
        return;
    }
    if (c->intake.whole_bytes == 0 && !take_over(c))
        return;
    n = c->intake.left ? 0 : read_piece(c);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        fade(c);
        return;
    }
    server_count_input(c);
    if (c->intake.whole_bytes > c->sock->input->size) {
        loop_task_post(c->server->loop, &c->intake.more, on_more);
        return;
    }
    intake_give_back(c);
    c->intake.had(c->sock, NULL); /* c may be gone */
}
