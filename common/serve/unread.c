/* Counts the bytes of one owner's answers that wait to be read (exchange_account), and cuts answers
 * when they are too many (exchange_cut_unread). */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/serve/server_internal.h"

/* Counts each waiting buffer once, in the account that it belongs to. */
void unread_count(struct exchange *x)
{
    size_t now = exchange_waiting(x);
    size_t own = exchange_unsent(x) + (x->sending ? x->flying.len : 0);

    x->conn->server->answer_bytes += own - x->own_counted;
    x->own_counted = own;
    if (x->account)
        x->account->bytes += now - x->counted;
    x->counted = now;
}

/* Counts the answer's unread bytes for the owner from now on. */
void exchange_account(struct exchange *x, struct str owner)
{
    struct map *all = &x->conn->server->unread;
    struct unread_account *a = map_get(all, owner);

    CHECK(!x->account);
    if (!a) {
        a = mem_zalloc(sizeof(*a) + owner.len);
        memcpy(a + 1, owner.p, owner.len);
        a->owner = str_of((const char *)(a + 1), owner.len);
        (void)map_set(all, a->owner, a);
    }
    list_append(&a->exchanges, &x->accounted);
    a->bytes += x->counted;
    x->account = a;
    unread_count(x);
}

/* Removes the exchange from its account, and frees the account of the last one. */
void unread_leave(struct exchange *x)
{
    struct unread_account *a = x->account;

    if (!a)
        return;
    x->account = NULL;
    a->bytes -= x->counted;
    list_remove(&x->accounted);
    if (!list_is_empty(&a->exchanges))
        return;
    (void)map_take(&x->conn->server->unread, a->owner);
    free(a);
}

size_t exchange_owner_waiting(const struct exchange *x, struct str owner)
{
    const struct unread_account *a = map_get(&x->conn->server->unread, owner);

    return a ? a->bytes : 0;
}

/* Returns the unfinished answer with most waiting bytes, if all unfinished ones together exceed
 * max_bytes, or if it has more waiting than a reading client needs. Otherwise NULL. */
static struct exchange *largest_growing(struct unread_account *a, size_t max_bytes)
{
    struct exchange *most = NULL, *x;
    size_t growing = 0;

    LIST_EACH(&a->exchanges, x, struct exchange, accounted) {
        if (x->ending)
            continue;
        growing += x->counted;
        if (!most || x->counted > most->counted)
            most = x;
    }
    return growing > max_bytes || (most && most->counted > EXCHANGE_WINDOW) ? most : NULL;
}

/* libh2o frees the answer's bytes and the exchange in a later loop iteration, when it sees the
 * connection's end, because a caller on the stack may still use the exchange. */
void exchange_cut(struct exchange *x)
{
    unread_leave(x);
    x->cut = true;
    x->failing = true;
    x->req->http1_is_persistent = 0;
    exchange_drop_unsent(x);
    unread_count(x);
    (void)shutdown(x->conn->fd, SHUT_RDWR);
}

unsigned exchange_cut_unread(struct exchange *x, size_t max_bytes)
{
    unsigned n = 0;

    while (x->account && x->account->bytes > max_bytes) {
        struct exchange *most = largest_growing(x->account, max_bytes);

        if (!most)
            break;
        exchange_cut(most);
        n++;
    }
    return n;
}
