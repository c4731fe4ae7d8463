/*
 * A list that is searched from the front: a worker serves few places, its own first. places_find
 * always finds one: an id without an index, or with an index that is not served here, gets the own
 * place. places_serve says whether an index is served here.
 */
#include "worker/residency/places.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/proc/ids.h"

void places_add(struct places *p, uint32_t index, struct journal *journal)
{
    p->at = mem_realloc_array(p->at, p->n + 1, sizeof(*p->at));
    p->at[p->n++] = (struct place_journal){index, journal};
}

/* Finds the journal of an index; NULL: not served here. */
static const struct place_journal *find_journal(const struct places *p, uint32_t index)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->at[i].index == index)
            return &p->at[i];
    }
    return NULL;
}

bool places_serve(const struct places *p, uint32_t index)
{
    return find_journal(p, index) != NULL;
}

const struct place_journal *places_find(const struct places *p, struct str session_id)
{
    const struct place_journal *at = NULL;
    uint32_t index;

    if (p->n > 1 && ids_parse(session_id, &index) == 0)
        at = find_journal(p, index);
    return at ? at : &p->at[0];
}

void places_done(struct places *p)
{
    for (size_t i = 0; i < p->n; i++)
        journal_close(p->at[i].journal);
    free(p->at);
    *p = (struct places){0};
}
