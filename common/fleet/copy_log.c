/* The order of a log's records (copy_log.h): fragments wait until their commit names them. */
#include "common/fleet/copy_log.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/fleet/second_copy.h"

struct copy_log *copy_log_new(struct copy_place *place, struct str session)
{
    struct copy_log *l = mem_zalloc(sizeof(*l) + session.len);

    l->place = place;
    l->id_len = session.len;
    memcpy(l->id, session.p, session.len);
    return l;
}

void copy_log_free(struct copy_log *l)
{
    list_remove(&l->behind);
    list_remove(&l->unasked);
    vec_done(&l->numbers);
    vec_done(&l->fragments);
    free(l);
}

struct str copy_log_id(const struct copy_log *l)
{
    return str_of(l->id, l->id_len);
}

/* Removes the fragments of the call from those that wait. With `named` it adds them to the log,
 * before the commit. */
static void end_fragments(struct copy_log *l, uint64_t call, bool named)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->fragments.n; i++) {
        struct copy_fragment f = l->fragments.at[i];

        if (f.call != call)
            l->fragments.at[kept++] = f;
        else if (named)
            *vec_push(&l->numbers) = f.number;
    }
    l->fragments.n = kept;
    if (kept == 0)
        vec_done(&l->fragments);
}

size_t copy_log_add(struct copy_log *l, const struct copy_role *role, uint32_t number)
{
    size_t had = l->numbers.n;

    if (role->kind == COPY_FRAGMENT) {
        if (role->first)
            end_fragments(l, role->call, false);
        if (!role->left_out)
            *vec_push(&l->fragments) = (struct copy_fragment){role->call, number};
        return 0;
    }
    if (role->kind == COPY_COMMIT)
        end_fragments(l, role->call, role->named);
    *vec_push(&l->numbers) = number;
    return l->numbers.n - had;
}

void copy_log_release_call(struct copy_log *l, uint64_t call)
{
    if (l->fragments.n > 0)
        end_fragments(l, call, false);
}
