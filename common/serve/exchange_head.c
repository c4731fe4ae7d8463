/* The head of a request (exchange.h). libh2o owns it as long as the request exists. An exchange
 * that is retained for longer has a copy. */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/proc/presented.h"
#include "common/serve/server_internal.h"

static struct str path_and_query(const struct exchange *x, size_t *ret_query_at)
{
    *ret_query_at = x->head ? x->head->query_at : x->req->input.query_at;
    return x->head ? x->head->path : str_of_iovec(x->req->input.path);
}

bool exchange_header_at(const struct exchange *x, size_t i, struct str *ret_name,
                        struct str *ret_value)
{
    if (i >= (x->head ? x->head->n : x->req->headers.size))
        return false;
    *ret_name = x->head ? x->head->headers[i].name : str_of_iovec(*x->req->headers.entries[i].name);
    *ret_value =
        x->head ? x->head->headers[i].value : str_of_iovec(x->req->headers.entries[i].value);
    return true;
}

struct str exchange_method(const struct exchange *x)
{
    return x->head ? x->head->method : str_of_iovec(x->req->input.method);
}

struct str exchange_path(const struct exchange *x)
{
    size_t query_at;
    struct str path = path_and_query(x, &query_at);

    return str_sub(path, 0, MIN_OF(query_at, path.len));
}

struct str exchange_query(const struct exchange *x)
{
    size_t query_at;
    struct str path = path_and_query(x, &query_at);

    return query_at >= path.len ? STR("") : str_sub(path, query_at + 1, SIZE_MAX);
}

struct str exchange_authority(const struct exchange *x)
{
    return x->head ? x->head->authority : str_of_iovec(x->req->input.authority);
}

static struct str find_copied(const struct exchange_head *head, struct str name)
{
    for (size_t i = 0; i < head->n; i++)
        if (str_eq(head->headers[i].name, name))
            return head->headers[i].value;
    return (struct str){0};
}

struct str exchange_header(const struct exchange *x, const char *name)
{
    size_t len = strlen(name);

    if (x->head)
        return find_copied(x->head, str_of(name, len));
    for (size_t i = 0; i < x->req->headers.size; i++) {
        const h2o_header_t *h = &x->req->headers.entries[i];

        if (h->name->len == len && memcmp(h->name->base, name, len) == 0)
            return str_of_iovec(h->value);
    }
    return (struct str){0};
}

uint64_t exchange_waited_ms(const struct exchange *x)
{
    uint64_t ms = 0;

    (void)str_to_u64(exchange_header(x, HTTP1_WAITED), UINT32_MAX, &ms);
    return ms;
}

void exchange_keys(const struct exchange *x, struct presented *to)
{
    struct exchange_header h;

    for (size_t i = 0; exchange_header_at(x, i, &h.name, &h.value); i++) {
        if (str_eq_c(h.name, "authorization"))
            presented_add(to, PRESENTED_BEARER, h.value);
        else if (str_eq_c(h.name, "x-api-key") || str_eq_c(h.name, "api-key"))
            presented_add(to, PRESENTED_PLAIN, h.value);
    }
}

struct str exchange_owner(const struct exchange *x)
{
    return x->server->opt.owner ? x->server->opt.owner(x) : STR("");
}

/* --- copies --- */

static struct str append_copy(char **at, struct str text)
{
    struct str copy = str_of(*at, text.len);

    memcpy(*at, text.p, text.len);
    *at += text.len;
    return copy;
}

/* Copies the head into one block of memory. */
static struct exchange_head *copy_head(const struct exchange *x)
{
    const h2o_headers_t *all = &x->req->headers;
    size_t n = all->size, bytes = 0;
    struct exchange_head *head;
    char *at;

    for (size_t i = 0; i < n; i++)
        bytes += all->entries[i].name->len + all->entries[i].value.len;
    bytes += x->req->input.method.len + x->req->input.path.len + x->req->input.authority.len;
    head = mem_alloc(sizeof(*head) + n * sizeof(*head->headers) + bytes);
    head->headers = (struct exchange_header *)(head + 1);
    at = (char *)(head->headers + n);
    head->n = n;
    head->query_at = x->req->input.query_at;
    head->method = append_copy(&at, str_of_iovec(x->req->input.method));
    head->path = append_copy(&at, str_of_iovec(x->req->input.path));
    head->authority = append_copy(&at, str_of_iovec(x->req->input.authority));
    for (size_t i = 0; i < n; i++) {
        head->headers[i].name = append_copy(&at, str_of_iovec(*all->entries[i].name));
        head->headers[i].value = append_copy(&at, str_of_iovec(all->entries[i].value));
    }
    return head;
}

void exchange_retain(struct exchange *x)
{
    if (!x->head)
        x->head = copy_head(x);
    x->refs++;
}

void exchange_release(struct exchange *x)
{
    if (--x->refs > 0)
        return;
    x->server->busy--;
    free(x->head);
    free(x);
}
