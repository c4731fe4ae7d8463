/* The added vocabulary (added.h). If a content occurs several times in the file, the reference
 * library's rules apply: the last entry's flags win, and the token is special if any entry is. Its
 * id is the vocabulary's if that has it, otherwise the next one after all ids so far. */

#include "worker/text/tokens/added.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/text/tokens/tokenizer.h"
#include "worker/text/tokens/vocab.h"

const struct added_token *added_by_content(const struct added *a, struct str content)
{
    size_t number = (size_t)(uintptr_t)map_get(&a->by_content, content);

    return number ? &a->list.at[number - 1] : NULL;
}

const struct added_token *added_by_id(const struct added *a, int32_t id)
{
    int32_t at;

    if (id < 0 || (size_t)id < a->id_first || (size_t)id >= a->id_count)
        return NULL;
    at = a->by_id[(size_t)id - a->id_first];
    return at ? &a->list.at[at - 1] : NULL;
}

bool added_same(const struct added_token *x, const struct added_token *y)
{
    return str_eq(x->content, y->content) && x->special == y->special &&
           x->single_word == y->single_word && x->lstrip == y->lstrip && x->rstrip == y->rstrip &&
           x->normalized == y->normalized;
}

/* Returns the id for a content. An earlier id is kept; a piece of the vocabulary keeps the
 * vocabulary's id. */
static int64_t choose_id(const struct added *a, struct str content, const struct vocab *vocab)
{
    const struct added_token *known = added_by_content(a, content);
    int32_t id = known ? known->id : vocab_id(vocab, content);

    if (id >= 0)
        return id;
    return a->top >= (int64_t)vocab->n || (a->top >= 0 && vocab->n == 0) ? a->top + 1
                                                                         : (int64_t)vocab->n;
}

/* Adds an entry, or replaces the one with the same content. Returns -1 if there are too many
 * ids. */
static int put_entry(struct added *a, const struct added_token *entry, const struct vocab *vocab,
                     struct err *e)
{
    size_t number = (size_t)(uintptr_t)map_get(&a->by_content, entry->content);
    int64_t id = choose_id(a, entry->content, vocab);

    if (id > VOCAB_ID_MAX)
        return err_set(e, ERR_UNSUPPORTED, "more than %d token ids", VOCAB_ID_MAX);
    if (!number) {
        *vec_push(&a->list) = *entry;
        number = a->list.n;
        map_set(&a->by_content, entry->content, (void *)(uintptr_t)number);
    }
    a->list.at[number - 1] = *entry;
    a->list.at[number - 1].id = (int32_t)id;
    a->top = MAX_OF(a->top, id);
    return 0;
}

/* Collects the patterns: special tokens have one per content, others one per entry. */
static void collect_patterns(struct added *a, const struct added_token *entries, size_t n,
                             const struct map *specials)
{
    struct map seen = {0};

    for (int special = 1; special >= 0; special--) {
        for (size_t i = 0; i < n; i++) {
            const struct added_token *entry = &entries[i], *known;

            if (entry->content.len == 0 || (special && !entry->special) ||
                (special && map_get(&seen, entry->content)) ||
                (!special && map_get(specials, entry->content)))
                continue;
            map_set(&seen, entry->content, a);
            known = added_by_content(a, entry->content);
            *vec_push(&a->patterns) =
                (struct added_pattern){entry->content, known->id, entry->normalized};
        }
    }
    map_done(&seen);
}

/* Decides the flag `special` and builds by_id, after all entries were added. */
static void index_ids(struct added *a, const struct map *specials)
{
    for (size_t i = 0; i < a->list.n; i++) {
        a->list.at[i].special = map_get(specials, a->list.at[i].content) != NULL;
    }
    a->id_count = (size_t)(a->top + 1);
    a->id_first = a->id_count;
    for (size_t i = 0; i < a->list.n; i++)
        a->id_first = MIN_OF(a->id_first, (size_t)a->list.at[i].id);
    a->by_id = mem_calloc(a->id_count - a->id_first + 1, sizeof(*a->by_id));
    for (size_t i = 0; i < a->list.n; i++)
        a->by_id[(size_t)a->list.at[i].id - a->id_first] = (int32_t)i + 1;
}

/* Skips entries without content, and repeated equal ones, which would get no id. */
int added_init(struct added *a, const struct added_token *entries, size_t n,
               const struct vocab *vocab, struct err *e)
{
    struct map specials = {0};
    int rc = 0;

    *a = (struct added){.top = -1};
    for (size_t i = 0; i < n; i++)
        if (entries[i].special && entries[i].content.len)
            map_set(&specials, entries[i].content, a);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct added_token *known = added_by_content(a, entries[i].content);

        if (entries[i].content.len == 0 || (known && added_same(known, &entries[i])))
            continue;
        rc = put_entry(a, &entries[i], vocab, e);
    }
    if (rc == 0) {
        collect_patterns(a, entries, n, &specials);
        index_ids(a, &specials);
    }
    map_done(&specials);
    return rc;
}

/* Frees the indexes. Contents belong to the tokenizer's arena. */
void added_done(struct added *a)
{
    vec_done(&a->list);
    vec_done(&a->patterns);
    map_done(&a->by_content);
    free(a->by_id);
    trie_done(&a->raw);
    trie_done(&a->normalized);
    *a = (struct added){0};
}
