/* The keys against which the dispatcher checks requests, and its own key for calls to workers. */
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "dispatcher/desk.h"
#include "dispatcher/workers.h"

int desk_open_keys(struct desk *d, struct err *e)
{
    const struct config *c = d->heritage->config;
    struct keys *fresh;
    char key[KEY_TEXT_MAX] = "";

    if (keys_load(c->admin_key_file, c->key_secret_file, d->heritage->state_dir, &fresh, e))
        return -1;
    keys_free(d->keys);
    d->keys = fresh;
    if (keys_required(fresh))
        keys_make_service(fresh, key);
    workers_key(d->workers, key);
    return 0;
}

void desk_close_keys(struct desk *d)
{
    keys_free(d->keys);
    d->keys = NULL;
}
