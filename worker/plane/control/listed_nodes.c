#include "worker/plane/control/listed_nodes.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/proc/heritage.h"
#include "worker/plane/control/sibling.h"

struct listed_nodes {
    struct listed_node of[FLEET_NODES_MAX];
    size_t n, at; /* number of nodes, and of the current one */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct listed_node *)a)->name, ((const struct listed_node *)b)->name);
}

static void add_node(struct listed_nodes *n, const struct fleet_node *node, uint32_t slot)
{
    n->of[n->n++] = (struct listed_node){
        .name = mem_strdup(node->name), .slot = slot, .is_self = node->is_self};
}

static struct listed_nodes *find_nodes(const struct heritage *h)
{
    struct listed_nodes *n = mem_zalloc(sizeof(*n));
    uint32_t self = place_table_self(h->fleet);
    struct fleet_node node;

    for (uint32_t at = 0; siblings_next_node(h, &at, &node);) {
        if (at - 1 != self)
            add_node(n, &node, at - 1);
    }
    if (place_table_node(h->fleet, self, &node) && n->n < FLEET_NODES_MAX)
        add_node(n, &node, self);
    qsort(n->of, n->n, sizeof(*n->of), compare_names);
    return n;
}

struct listed_nodes *listed_nodes_new(const struct heritage *h, struct str *cursor, struct err *e)
{
    size_t dot = str_find(*cursor, STR("."), 0);
    struct str name = str_sub(*cursor, 0, dot);
    const struct listed_node *now;
    struct listed_nodes *n;

    if (cursor->p && dot == SIZE_MAX) {
        (void)err_field(e, "cursor", "cursor is not one of ours");
        return NULL;
    }
    n = find_nodes(h);
    if (!cursor->p)
        return n;
    while ((now = listed_nodes_current(n)) && str_cmp(str_cstr(now->name), name) < 0)
        n->at++;
    *cursor =
        now && str_eq_c(name, now->name) ? str_sub(*cursor, dot + 1, SIZE_MAX) : (struct str){0};
    return n;
}

void listed_nodes_free(struct listed_nodes *n)
{
    for (size_t i = 0; n && i < n->n; i++)
        free((char *)(uintptr_t)n->of[i].name);
    free(n);
}

const struct listed_node *listed_nodes_current(const struct listed_nodes *n)
{
    return n->at < n->n ? &n->of[n->at] : NULL;
}

void listed_nodes_advance(struct listed_nodes *n)
{
    n->at++;
}
