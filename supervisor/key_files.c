#include "supervisor/key_files.h"

#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/proc/config.h"
#include "common/proc/keys.h"
#include "supervisor/user.h"

_Static_assert((int)EXECUTOR_KEY_MAX >= (int)KEY_TEXT_MAX, "an executor's key fits");

int key_files_check(const struct config *c, struct err *e)
{
    struct keys *keys = NULL;
    struct buf secret = {0};
    bool made;
    int rc;

    if (c->upstream.n > 0 && !c->admin_key_file)
        return 0;
    buf_printf(&secret, "%s/key-secret", c->state_dir);
    made = access(secret.p, F_OK) != 0;
    rc = keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &keys, e);
    keys_free(keys);
    if (rc == 0 && made && access(secret.p, F_OK) == 0)
        rc = user_chown(c, secret.p, e);
    buf_done(&secret);
    return rc;
}

void key_files_check_change(const struct config *old, const struct config *fresh,
                            struct buf *mistakes)
{
    struct keys *keys = NULL;
    struct err e;

    if (old->admin_key_file && !fresh->admin_key_file)
        buf_puts(mistakes, "admin-key-file: keys cannot be switched off while the service runs\n");
    if (keys_load(fresh->admin_key_file, fresh->key_secret_file, fresh->state_dir, &keys, &e))
        buf_printf(mistakes, "%s\n", e.text);
    keys_free(keys);
}

int key_files_executor(const struct config *c, char ret[EXECUTOR_KEY_MAX], struct err *e)
{
    struct keys *keys = NULL;
    int rc = keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &keys, e);

    ret[0] = 0;
    if (rc == 0 && keys_required(keys))
        rc = keys_make_executor(keys, STR("local"), ret, e);
    keys_free(keys);
    return rc;
}
