#include "common/base/list.h"

#include <string.h>

#include "testing.h"

struct thing {
    int number;
    struct list_item item, other;
};

/* Checks the numbers of the list from first to last, and from last to first. */
static void holds(const struct list_head *l, const int *want, size_t n)
{
    const struct thing *t;
    size_t i = 0;

    LIST_EACH(l, t, struct thing, item) {
        cr_assert_lt(i, n, "more than %zu things", n);
        cr_assert_eq(t->number, want[i]);
        i++;
    }
    cr_assert_eq(i, n);
    for (t = LIST_LAST_OF(l, struct thing, item); t; t = LIST_PREV_OF(l, t, struct thing, item))
        cr_assert_eq(t->number, want[--i]);
    cr_assert_eq(i, 0u);
    cr_assert_eq(list_is_empty(l), n == 0);
}

#define HOLDS(l, ...) \
    holds((l), (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

TEST(list, zeroed_is_empty)
{
    struct list_head l = {0};
    struct thing t = {.number = 1};

    holds(&l, NULL, 0);
    cr_assert_null(LIST_FIRST_OF(&l, struct thing, item));
    cr_assert_null(LIST_LAST_OF(&l, struct thing, item));
    cr_assert_not(list_holds(&t.item));
    list_remove(&t.item); /* not in a list: no effect */
    cr_assert_not(list_holds(&t.item));
}

TEST(list, keeps_order)
{
    struct list_head l = {0};
    struct thing a = {.number = 1}, b = {.number = 2}, c = {.number = 3}, d = {.number = 4};

    list_append(&l, &b.item);
    list_append(&l, &c.item);
    list_prepend(&l, &a.item);
    HOLDS(&l, 1, 2, 3);
    list_insert(&b.item, &d.item);
    HOLDS(&l, 1, 2, 4, 3);
    list_remove(&d.item);
    list_insert(&c.item, &d.item); /* after the last item */
    HOLDS(&l, 1, 2, 3, 4);
    list_remove(&d.item);
    list_insert(list_front(&l), &d.item); /* before the first item */
    HOLDS(&l, 4, 1, 2, 3);
}

TEST(list, removes_anywhere_and_takes_again)
{
    struct list_head l = {0};
    struct thing t[3] = {{.number = 0}, {.number = 1}, {.number = 2}};

    for (int i = 0; i < 3; i++)
        list_append(&l, &t[i].item);
    list_remove(&t[1].item);
    HOLDS(&l, 0, 2);
    cr_assert_not(list_holds(&t[1].item));
    list_remove(&t[1].item); /* a second time: no effect */
    HOLDS(&l, 0, 2);
    list_remove(&t[0].item);
    list_remove(&t[2].item);
    holds(&l, NULL, 0);
    list_append(&l, &t[1].item); /* an emptied list can be used again */
    HOLDS(&l, 1);
}

TEST(list, one_thing_in_two_lists)
{
    struct list_head l = {0}, m = {0};
    struct thing a = {.number = 1}, b = {.number = 2};

    list_append(&l, &a.item);
    list_append(&l, &b.item);
    list_append(&m, &b.other);
    list_append(&m, &a.other);
    list_remove(&a.item);
    HOLDS(&l, 2);
    cr_assert_eq(LIST_LAST_OF(&m, struct thing, other), &a);
    cr_assert_eq(LIST_FIRST_OF(&m, struct thing, other), &b);
}

TEST(list, loop_may_remove_what_it_is_at)
{
    struct list_head l = {0};
    struct thing t[4], *at, *next;

    for (int i = 0; i < 4; i++) {
        t[i] = (struct thing){.number = i};
        list_append(&l, &t[i].item);
    }
    LIST_EACH_SAFE(&l, at, next, struct thing, item) {
        if (at->number % 2 == 0) {
            list_remove(&at->item);
            memset(at, 0x5a, sizeof(*at)); /* simulates freed memory */
        }
    }
    cr_assert_null(at);
    HOLDS(&l, 1, 3);
    LIST_EACH(&l, at, struct thing, item) {
        if (at->number == 3)
            break;
    }
    cr_assert_eq(at, &t[3], "a loop that is left keeps its place");
}

TEST(list, moves_all)
{
    struct list_head from = {0}, to = {0};
    struct thing t[4];

    for (int i = 0; i < 4; i++) {
        t[i] = (struct thing){.number = i};
        list_append(i < 2 ? &to : &from, &t[i].item);
    }
    list_move_all(&from, &to);
    HOLDS(&to, 0, 1, 2, 3);
    holds(&from, NULL, 0);
    list_move_all(&from, &to); /* from an empty list */
    HOLDS(&to, 0, 1, 2, 3);
    list_move_all(&to, &from); /* to an empty list */
    HOLDS(&from, 0, 1, 2, 3);
    holds(&to, NULL, 0);
    list_remove(&t[3].item);
    HOLDS(&from, 0, 1, 2);
}
