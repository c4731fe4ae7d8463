/* Requests that wait to begin. The owners (server_options.owner) take turns, one request each, so
 * that an owner with hundreds of requests delays only its own. An owner exists while it has waiting
 * requests. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/serve/server_internal.h"

struct late_owner {
    struct list_item item; /* in server->late */
    struct list_head exchanges;
    struct str name; /* name of the owner, in this block */
};

static struct late_owner *owner_of(struct server *s, const struct exchange *x)
{
    struct str name = s->opt.owner ? s->opt.owner(x) : STR("");
    struct late_owner *o = map_get(&s->late_owners, name);
    char *copy;

    if (o)
        return o;
    o = mem_zalloc(sizeof(*o) + name.len + 1);
    copy = (char *)(o + 1);
    if (name.len > 0)
        memcpy(copy, name.p, name.len);
    o->name = str_of(copy, name.len);
    (void)map_set(&s->late_owners, o->name, o);
    list_append(&s->late, &o->item);
    return o;
}

void deferred_add(struct server *s, struct exchange *x)
{
    list_append(&owner_of(s, x)->exchanges, &x->late);
}

struct exchange *deferred_next(struct server *s)
{
    struct late_owner *o;

    while ((o = LIST_FIRST_OF(&s->late, struct late_owner, item))) {
        struct exchange *x = LIST_FIRST_OF(&o->exchanges, struct exchange, late);

        list_remove(&o->item);
        if (x)
            list_remove(&x->late);
        if (!list_is_empty(&o->exchanges)) {
            list_append(&s->late, &o->item);
        } else {
            (void)map_take(&s->late_owners, o->name);
            free(o);
        }
        if (x) /* otherwise all its requests were abandoned */
            return x;
    }
    return NULL;
}

void deferred_done(struct server *s)
{
    while (deferred_next(s))
        ;
    map_done(&s->late_owners);
}
