/*
 * struct list_head, struct list_item: a doubly linked list of structs that hold their own links.
 *
 *     struct list_head      owner            owner
 *     +------+          +----------+     +----------+
 *     | ends |<-------->|  item    |<--->|  item    |<---- back to ends
 *     +------+          |  ...     |     |  ...     |
 *                       +----------+     +----------+
 *
 * The links are embedded in their owner by value, one item for each list that the owner may be in.
 * The list never allocates and never frees. A zeroed head is an empty list and a zeroed item is in
 * no list, so neither needs an initialiser. A head with items in it must not be moved or copied:
 * its items point at it. An item is in one list at a time. list_remove needs no head and accepts an
 * item that is in no list. Every function takes constant time.
 */
#ifndef RG_BASE_LIST_H
#define RG_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/attrs.h"

struct list_item {
    struct list_item *next, *prev; /* NULL: in no list */
};

struct list_head {
    struct list_item ends; /* next: the first item; prev: the last one; NULL: never used */
};

/* Returns true if the item is in a list. */
static inline bool list_holds(const struct list_item *item)
{
    return item->next != NULL;
}

static inline bool list_is_empty(const struct list_head *l)
{
    return l->ends.next == NULL || l->ends.next == &l->ends;
}

/* Inserts the item after `before`, which is in a list. The item must not be in a list. */
static inline void list_insert(struct list_item *before, struct list_item *item)
{
    item->prev = before;
    item->next = before->next;
    before->next->prev = item;
    before->next = item;
}

/* Returns the head as an item: list_insert after it adds a new first item. */
static inline struct list_item *list_front(struct list_head *l)
{
    if (!l->ends.next)
        l->ends.next = l->ends.prev = &l->ends;
    return &l->ends;
}

/* Adds the item at the end. It must not be in a list. */
static inline void list_append(struct list_head *l, struct list_item *item)
{
    list_insert(list_front(l)->prev, item);
}

/* Adds the item at the beginning. It must not be in a list. */
static inline void list_prepend(struct list_head *l, struct list_item *item)
{
    list_insert(list_front(l), item);
}

/* Removes the item from its list, if it is in one. */
static inline void list_remove(struct list_item *item)
{
    if (!item->next)
        return;
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->next = item->prev = NULL;
}

/* Moves all items of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_move_all(struct list_head *from, struct list_head *to)
{
    struct list_item *before = list_front(to)->prev;

    if (list_is_empty(from))
        return;
    before->next = from->ends.next;
    before->next->prev = before;
    to->ends.prev = from->ends.prev;
    to->ends.prev->next = &to->ends;
    from->ends.next = from->ends.prev = NULL;
}

/* Returns the owner of an item that is `offset` bytes after the owner's start, or NULL at the
 * list's ends. */
static inline void *list_owner(const struct list_head *l, struct list_item *item, size_t offset)
{
    return item == NULL || item == &l->ends ? NULL : (char *)item - offset;
}

/* The first and the last owner in the list, or NULL. `member` is the item's name in `type`. */
#define LIST_FIRST_OF(l, type, member) \
    ((type *)list_owner((l), (l)->ends.next, offsetof(type, member)))
#define LIST_LAST_OF(l, type, member) \
    ((type *)list_owner((l), (l)->ends.prev, offsetof(type, member)))

/* The owner after `at` and the owner before it, or NULL. `at` must be in the list. */
#define LIST_NEXT_OF(l, at, type, member) \
    ((type *)list_owner((l), (at)->member.next, offsetof(type, member)))
#define LIST_PREV_OF(l, at, type, member) \
    ((type *)list_owner((l), (at)->member.prev, offsetof(type, member)))

/* Loops over the owners, first to last. `at` is NULL after a complete loop. The body of LIST_EACH
 * must not remove `at` from the list. The body of LIST_EACH_SAFE may remove `at`, but not `then`,
 * the next owner. */
#define LIST_EACH(l, at, type, member)                          \
    for ((at) = LIST_FIRST_OF((l), type, member); (at) != NULL; \
         (at) = LIST_NEXT_OF((l), (at), type, member))
#define LIST_EACH_SAFE(l, at, then, type, member)                     \
    for ((at) = LIST_FIRST_OF((l), type, member),                     \
        (then) = (at) ? LIST_NEXT_OF((l), (at), type, member) : NULL; \
         (at) != NULL;                                                \
         (at) = (then), (then) = (at) ? LIST_NEXT_OF((l), (at), type, member) : NULL)

#endif
