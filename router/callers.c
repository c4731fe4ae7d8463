/* Callers are short names in a map: a letter for the kind, and the bytes of an address or an id. */

#include "router/callers.h"

#include <netinet/in.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"

static struct str make_name(char text[CALLER_NAME_MAX], char kind, const void *bytes, size_t len)
{
    text[0] = kind;
    memcpy(text + 1, bytes, len);
    return str_of(text, len + 1);
}

struct str caller_of_address(const struct sockaddr_storage *from, char text[CALLER_NAME_MAX])
{
    const struct sockaddr_in *v4 = (const void *)from;
    const struct sockaddr_in6 *v6 = (const void *)from;

    if (from->ss_family == AF_INET)
        return make_name(text, '4', &v4->sin_addr, 4);
    if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return make_name(text, '4', v6->sin6_addr.s6_addr + 12, 4);
    if (from->ss_family == AF_INET6)
        return make_name(text, '6', &v6->sin6_addr, 8);
    return make_name(text, 'o', "", 0);
}

struct str caller_of_key(enum key_scope scope, struct str id, char text[CALLER_NAME_MAX])
{
    static const char kinds[] = {[KEY_AGENT] = 'a', [KEY_RUNNER] = 'r', [KEY_EXECUTOR] = 'x'};

    return make_name(text, kinds[scope], id.p, id.len < ID_TEXT_MAX ? id.len : ID_TEXT_MAX);
}

size_t callers_connections(const struct map *all, struct str name)
{
    const struct caller *c = map_get(all, name);

    return c ? c->connections : 0;
}

struct caller *callers_join(struct map *all, struct str name)
{
    struct caller *c = map_get(all, name);

    if (!c) {
        c = mem_zalloc(sizeof(*c));
        memcpy(c->name, name.p, name.len);
        c->name_len = name.len;
        (void)map_set(all, str_of(c->name, c->name_len), c);
    }
    c->connections++;
    return c;
}

void callers_leave(struct map *all, struct caller *c)
{
    if (!c || --c->connections > 0)
        return;
    (void)map_take(all, str_of(c->name, c->name_len));
    free(c);
}
