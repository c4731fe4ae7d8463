/* A keeper whose store only records the claims, releases and renewals that are asked of it. */
#ifndef RG_UNIT_KEEPER_KIT_H
#define RG_UNIT_KEEPER_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/os/file.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "common/proc/place_folder.h"
#include "keeper/keeper_state.h"
#include "testing.h"

enum { LEASE_MS = 1000, CALLS = 8, OWN = 0, OTHER = 256 };

struct claims_store {
    struct store store;
    size_t n;
    struct store_claim claims[CALLS];
    struct store_call calls[CALLS];
    uint32_t released;            /* the last place whose release was asked for */
    struct store_renewal renewed; /* the first place of the last renewal */
};

struct keeper_case {
    struct fleet_keeper k;
    struct heritage h;
    struct config config;
    struct claims_store store;
    char folder[64];
};

static inline void record_claim(struct store *store, const struct store_claim *claim,
                                struct store_call call)
{
    struct claims_store *s = CONTAINER_OF(store, struct claims_store, store);

    cr_assert_lt(s->n, CALLS);
    s->claims[s->n] = *claim;
    s->calls[s->n++] = call;
}

static inline void record_release(struct store *store, uint32_t place, uint64_t epoch,
                                  uint64_t server, struct store_call call)
{
    struct claims_store *s = CONTAINER_OF(store, struct claims_store, store);

    (void)epoch, (void)server;
    s->released = place;
    cr_assert_lt(s->n, CALLS);
    s->calls[s->n++] = call;
}

static inline void record_renewal(struct store *store, struct str node,
                                  const struct store_renewal *at, size_t n, struct store_call call)
{
    struct claims_store *s = CONTAINER_OF(store, struct claims_store, store);

    (void)node;
    if (n > 0)
        s->renewed = at[0];
    s->calls[s->n++] = call;
}

static inline void answer_claim(struct claims_store *s, const struct store_answer *a)
{
    struct store_call call = s->calls[--s->n];

    call.fn(call.ctx, a);
}

static inline void keeper_case_open(struct keeper_case *f)
{
    static const struct store_kind kind = {
        .claim = record_claim, .release = record_release, .renew = record_renewal};
    static char fleet[] = "run";

    memset(f, 0, sizeof(*f));
    f->k.url.name = fleet;
    strcpy(f->folder, "/tmp/rg-keeper-XXXXXX");
    cr_assert(mkdtemp(f->folder));
    f->store.store.kind = &kind;
    f->h.board = board_new();
    f->h.metrics = metrics_new(1);
    f->h.page = metrics_page(f->h.metrics, 0, "keeper");
    f->h.state_dir = f->folder;
    f->h.config = &f->config;
    f->config.dispatcher = true;
    f->k.h = &f->h;
    f->k.table = place_table_new();
    f->k.store = &f->store.store;
    f->k.lease_ms = LEASE_MS;
    f->k.step = JOINED;
    strcpy(f->k.name, "me");
    strcpy(f->k.entry.tokenizer, "t");
    f->k.entry.newest_record = 3;
    f->k.usual_record = 2;
    f->k.view.self = f->k.name;
}

static inline void keeper_case_close(struct keeper_case *f)
{
    while (f->store.n > 0)
        answer_claim(&f->store, &(struct store_answer){.verdict = STORE_LOST, .why = "the end"});
    fleet_view_done(&f->k.view);
    vec_done(&f->k.claims);
    vec_done(&f->k.avoided);
    vec_done(&f->k.renewals);
    place_table_free(f->k.table);
    metrics_free(f->h.metrics);
    board_free(f->h.board);
    file_remove_tree(f->folder);
}

/* The store's only place, in a complete list. */
static inline void list(struct keeper_case *f, uint32_t index, struct store_entry e,
                        uint64_t now_ms)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "place:%u", index);
    e.key = str_cstr(key);
    e.version = 3;
    fleet_view_add(&f->k.view, &e, now_ms);
    fleet_view_end_list(&f->k.view, now_ms);
}

/* The node that made the ids of OTHER has this node's tokenizer. */
static inline void add_block(struct keeper_case *f)
{
    struct node_entry n = {.address = "10.0.0.7:8600", .instance = "i", .build = "b", .block = 1};
    struct buf value = {0};

    strcpy(n.tokenizer, "t");
    node_entry_write(&n, &value);
    fleet_view_add(&f->k.view,
                   &(struct store_entry){.key = STR("node:a"), .value = buf_str(&value)}, 1);
    fleet_view_add(&f->k.view, &(struct store_entry){.key = STR("block:1"), .value = STR("a")}, 1);
    buf_done(&value);
}

#endif
