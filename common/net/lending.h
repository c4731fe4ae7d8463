/*
 * Lending: a router hands a client's connection to the worker that serves its requests, so that
 * later requests need no relay, and the worker hands it back when a different request arrives. This
 * file has what both need: the channel between them, its messages, and a page of shared memory that
 * shows, even after a worker has died, the state of each lent connection.
 *
 *     router                                              worker
 *       | -- LENDING_OPENS + channel + page, on a link ----> |   once; the link is closed then
 *       | -- GIVE slot, head, the client's descriptor -----> |   reads the requests that arrive
 *       | <-- PIECE slot, bytes ---------------------------- |   it read these, and more follow
 *       | <-- BACK slot, bytes ----------------------------- |   the last ones that it read
 *       | <-- CLOSED slot ---------------------------------- |   the page shows what must be done
 *       | -- RECALL ---------------------------------------> |   return all as soon as possible
 *
 * The router keeps a descriptor of each connection that it has lent, but does not read it. A worker
 * serves only requests whose head equals that of the GIVE message byte for byte, except the digits
 * of its Content-Length, so that the router's checks of the head also apply to them. A process that
 * sees its end of the channel closed knows that the other process has ended.
 */
#ifndef RG_NET_LENDING_H
#define RG_NET_LENDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"
#include "common/base/str.h"

/* The first and only bytes of the link by which a channel is sent. */
#define LENDING_OPENS "rollgate lends\n"

enum {
    LENDING_SLOTS = 1024,          /* connections of one channel at a time */
    LENDING_HEAD_MAX = 4096,       /* bytes of a head */
    LENDING_MESSAGE_MAX = 32 << 10 /* bytes that one message carries */
};

enum lending_kind { LENDING_GIVE, LENDING_RECALL, LENDING_PIECE, LENDING_BACK, LENDING_CLOSED };

/* State of a lent connection. */
enum lending_state {
    LENDING_IDLE, /* the worker has answered everything that it has read */
    /* the worker has read a part of a request, and written nothing of its answer */
    LENDING_ASKED,
    LENDING_ANSWERED /* bytes of the answer may have been written, or nobody can receive one */
};

/* Shared memory of a channel. The worker writes it. */
struct lending_page {
    _Atomic unsigned char state[LENDING_SLOTS]; /* enum lending_state */
};

/* Header of a message; bytes follow. */
struct lending_message {
    uint32_t kind;
    uint32_t slot;
    uint32_t length_at; /* GIVE: offset of the digits of Content-Length in the head */
};

/* A channel: its two ends and its page, those for the router and those that it sends to the
 * worker. */
struct lending_channel {
    int fd; /* non-blocking */
    int fd_of_worker;
    int page_fd;
    struct lending_page *page;
};

/* Opens a channel. The caller closes the descriptors and unmaps the page. Returns -1 with
 * ERR_IO. */
int lending_open(struct lending_channel *ret, struct err *e);

/* Maps the page of a descriptor that was sent with LENDING_OPENS. Returns NULL with ERR_IO if it is
 * no such page. */
struct lending_page *lending_map(int page_fd, struct err *e);
void lending_unmap(struct lending_page *p);

/* Sends a message with its bytes and (fd >= 0) a descriptor, completely or not at all. Returns -1
 * with errno. */
int lending_send(int channel, const struct lending_message *m, struct str bytes, int fd);

/* Receives a message into `room` (LENDING_MESSAGE_MAX bytes and a message). ret_bytes become its
 * bytes, which borrow `room`. ret_fd becomes the descriptor sent with it, the caller's, or -1, also
 * if this process cannot have more descriptors. Returns 1, 0 if the channel has ended or its other
 * side breaks the rules, -1 if no message is available. */
int lending_receive(int channel, char *room, struct lending_message *m, struct str *ret_bytes,
                    int *ret_fd);

/* Sends LENDING_OPENS with both descriptors over a link. Returns -1 with errno. */
int lending_introduce(int link, const struct lending_channel *c);

/* Reads a link's first bytes like read(2), with the descriptors sent with them (-1: none), which
 * become the caller's. */
ssize_t lending_first_read(int link, void *to, size_t size, int ret_fds[2]);

/* Reports whether requests with this head may be served without a relay: no header is for one hop
 * only, the connection is kept, and there is a body with a length. ret_head becomes the head from
 * its method to its empty line, borrowed from where h was parsed. */
struct http1_head;
bool lending_plain(const struct http1_head *h, struct str *ret_head, size_t *ret_length_at);

/* Reports whether `in`, the beginning of a request, agrees so far with that head. *ret_whole
 * becomes the bytes of the whole request, or 0 while its head is incomplete. Returns false if the
 * head differs, or if the length is not valid. */
bool lending_matches(struct str head, size_t length_at, struct str in, size_t *ret_whole);

#endif
