/*
 * Lending: a router hands a client's connection to the worker that its requests go to, so that the
 * next ones need no relay, and the worker hands it back when something else comes. What both need
 * of it lies here: the channel between them, its messages, and a page of shared memory that tells,
 * also after a worker has died, how far each lent connection was.
 *
 *     router                                              worker
 *       | -- LENDING_OPENS + channel + page, on a link ----> |   once; the link is closed then
 *       | -- GIVE slot, head, the client's descriptor -----> |   reads the requests that come
 *       | <-- PIECE slot, bytes ---------------------------- |   it read them, and more follows
 *       | <-- BACK slot, bytes ----------------------------- |   the last ones that it read
 *       | <-- CLOSED slot ---------------------------------- |   the page says what is to be done
 *       | -- RECALL ---------------------------------------> |   return all as soon as you can
 *
 * The router keeps a descriptor of each connection that it has lent, and does not look at it. A
 * worker serves only requests whose head equals that of the GIVE message byte for byte, but for the
 * digits of its Content-Length: all that a router judges by the head has been judged. Either end of
 * the channel that sees it closed knows that the other process has ended.
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

/* The first and only bytes of the link that brings a channel. */
#define LENDING_OPENS "rollgate lends\n"

enum {
    LENDING_SLOTS = 1024,          /* connections of one channel at a time */
    LENDING_HEAD_MAX = 4096,       /* bytes of a head */
    LENDING_MESSAGE_MAX = 32 << 10 /* bytes that one message carries */
};

enum lending_kind { LENDING_GIVE, LENDING_RECALL, LENDING_PIECE, LENDING_BACK, LENDING_CLOSED };

/* How far a lent connection is. */
enum lending_state {
    LENDING_IDLE,    /* the worker has read nothing that it has not answered whole */
    LENDING_ASKED,   /* it has read of a request, and written nothing of its answer */
    LENDING_ANSWERED /* bytes of the answer may be written, or there is no reader for one */
};

/* Shared memory of a channel; the worker writes it. */
struct lending_page {
    _Atomic unsigned char state[LENDING_SLOTS]; /* enum lending_state */
};

/* What a message begins with; bytes follow. */
struct lending_message {
    uint32_t kind;
    uint32_t slot;
    uint32_t length_at; /* GIVE: where in the head the digits of its Content-Length are */
};

/* A channel's two ends and its page: the router's own, and what it sends to the worker. */
struct lending_channel {
    int fd; /* non-blocking */
    int fd_of_worker;
    int page_fd;
    struct lending_page *page;
};

/* The caller closes the descriptors and gives the page back. -1 and ERR_IO. */
int lending_open(struct lending_channel *ret, struct err *e);

/* The page of a descriptor that came with LENDING_OPENS; NULL and ERR_IO if it is none. */
struct lending_page *lending_map(int page_fd, struct err *e);
void lending_unmap(struct lending_page *p);

/* Sends a message, its bytes and (fd >= 0) a descriptor, all or nothing. -1 with errno. */
int lending_send(int channel, const struct lending_message *m, struct str bytes, int fd);

/* Receives a message into `room` (LENDING_MESSAGE_MAX bytes and a message), and its bytes into
 * ret_bytes, which borrow it; ret_fd: the descriptor that came with it, the caller's, or -1, also
 * when this process has no room for one. Returns 1, 0 if the channel has ended or its other side
 * breaks the rules, -1 if no message is there. */
int lending_receive(int channel, char *room, struct lending_message *m, struct str *ret_bytes,
                    int *ret_fd);

/* Sends LENDING_OPENS with both descriptors over a link. -1 with errno. */
int lending_introduce(int link, const struct lending_channel *c);

/* Reads a link's first bytes like read(2), with the descriptors that come with them (-1: none),
 * which are the caller's. */
ssize_t lending_first_read(int link, void *to, size_t size, int ret_fds[2]);

/* Whether requests with this head may be served without a relay: nothing of it is for one hop only,
 * the connection is kept, and there is a body with a length. ret_head: the head from its method to
 * its empty line, borrowed from where h was parsed. */
struct http1_head;
bool lending_plain(const struct http1_head *h, struct str *ret_head, size_t *ret_length_at);

/* Whether `in`, which is or will be the beginning of a request, is a request with that head so far.
 * ret_whole: bytes of the whole request, 0 while its head is not complete. False: the head differs,
 * or the length is no number of a request. */
bool lending_matches(struct str head, size_t length_at, struct str in, size_t *ret_whole);

#endif
