/*
 * What precedes the first step of join.c: the node's own entry, its keys, the connection, and the
 * check of the server.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/fleet/redis_store.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "keeper/keeper_state.h"

enum { INSTANCE_HEX = 32, STATE_PATH_MAX = 4096 + 32 };

static int read_keys(struct fleet_keeper *k, struct err *e)
{
    const struct config *c = k->h->config;
    struct keys *keys = NULL;

    if (keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &keys, e))
        return -1;
    fleet_entry_make(keys, &k->common);
    keys_free(keys);
    return 0;
}

/* Keys may have been rotated: a node that joins later compares with the new ones. */
bool opening_read_keys(struct fleet_keeper *k)
{
    struct fleet_entry before = k->common;
    struct err e;

    if (read_keys(k, &e)) {
        log_error(NULL, "keys are unchanged", LOG_T("reason", e.text));
        return false;
    }
    return !fleet_entry_is_same(&before, &k->common);
}

/* Replaces a file of the state folder. */
static int write_state(const char *path, struct str text, struct err *e)
{
    char aside[STATE_PATH_MAX + 8];

    (void)snprintf(aside, sizeof(aside), "%s.new", path);
    return file_write(path, aside, text, true) ? err_sys(e, ERR_IO, "cannot write %s", path) : 0;
}

/* Reads the instance, a random name of the state folder, which is made once. */
static int read_instance(struct fleet_keeper *k, struct err *e)
{
    char path[STATE_PATH_MAX];
    struct buf text = {0};
    struct ids *ids;

    (void)snprintf(path, sizeof(path), "%s/fleet-instance", k->h->state_dir);
    if (file_read(path, 1024, &text, e) == 0 && text.len == INSTANCE_HEX) {
        memcpy(k->entry.instance, text.p, INSTANCE_HEX);
        buf_done(&text);
        return 0;
    }
    buf_done(&text);
    ids = ids_new(e);
    if (!ids)
        return -1;
    ids_hex(ids, k->entry.instance, INSTANCE_HEX / 2);
    ids_free(ids);
    return write_state(path, str_of(k->entry.instance, INSTANCE_HEX), e);
}

static void block_path(const struct fleet_keeper *k, char ret[STATE_PATH_MAX])
{
    (void)snprintf(ret, STATE_PATH_MAX, "%s/fleet-block", k->h->state_dir);
}

/* The store may be emptied or replaced, but the ids of the sessions here keep their indexes. */
static int read_block(struct fleet_keeper *k, struct err *e)
{
    char path[STATE_PATH_MAX];
    struct buf text = {0};
    uint64_t block;
    int rc = 0;

    k->kept_block = FLEET_BLOCKS;
    block_path(k, path);
    if (file_read(path, 1024, &text, e))
        rc = e->sys == ENOENT ? 0 : -1;
    else if (str_to_u64(buf_str(&text), FLEET_BLOCKS - 1, &block))
        rc = err_set(e, ERR_CONFIG, "%s: has no number of a block", path);
    else
        k->kept_block = (uint32_t)block;
    buf_done(&text);
    return rc;
}

int opening_keep_block(struct fleet_keeper *k, struct err *e)
{
    char path[STATE_PATH_MAX], text[16];

    if (k->kept_block == k->entry.block)
        return 0;
    if (k->kept_block < FLEET_BLOCKS)
        log_warn(NULL, "this node has other indexes now",
                 LOG_U("from_index", k->entry.block * FLEET_BLOCK_SIZE),
                 LOG_U("before", k->kept_block * FLEET_BLOCK_SIZE));
    block_path(k, path);
    (void)snprintf(text, sizeof(text), "%u", k->entry.block);
    if (write_state(path, str_cstr(text), e))
        return -1;
    k->kept_block = k->entry.block;
    return 0;
}

static void fill_entry(struct fleet_keeper *k)
{
    const struct heritage *h = k->h;

    (void)snprintf(k->name, sizeof(k->name), "%s", h->config->fleet_node);
    (void)snprintf(k->entry.address, sizeof(k->entry.address), "%s", h->config->fleet_address);
    (void)snprintf(k->entry.build, sizeof(k->entry.build), "%s", RG_VERSION);
    (void)snprintf(k->entry.tokenizer, sizeof(k->entry.tokenizer), "%016llx",
                   (unsigned long long)h->build.tokenizer);
    k->entry.oldest_record = h->build.oldest_record;
    k->entry.lease_ms = k->lease_ms;
    k->replicated = h->config->fleet_acks > 1;
    k->entry.newest_record = h->build.newest_record;
    k->usual_record = h->build.usual_record;
}

int opening_open(struct fleet_keeper *k, struct err *e)
{
    fill_entry(k);
    if (read_keys(k, e) || read_instance(k, e) || read_block(k, e) ||
        store_url_parse(str_cstr(k->h->config->fleet), &k->url, e) || known_places_check(k, e))
        return -1;
    k->store = redis_store_open(k->loop, str_cstr(k->h->config->fleet), (unsigned)k->lease_ms, e);
    return k->store ? 0 : -1;
}

static void on_info(void *ctx, const struct store_answer *a)
{
    struct fleet_keeper *k = ctx;
    const char *fault;

    k->asking = false;
    keeper_check_answer(k, a);
    if (a->verdict == STORE_LOST)
        return; /* the next beat asks again */
    fault = keeper_check_store(k, a);
    if (fault) {
        keeper_fail(k, fault);
        return;
    }
    k->step = JOIN_FLEET;
    keeper_list(k);
}

void opening_ask(struct fleet_keeper *k)
{
    k->asking = true;
    redis_store_info(k->store, (struct store_call){on_info, k});
}
