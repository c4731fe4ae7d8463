/* Folders, keys and sockets, which must be available before anything is started. */
#include "common/proc/config.h"
#include "supervisor/key_files.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

/* Checks folders and keys, and makes missing ones: children may not write the secret. */
static int check_files(const struct config *c, struct err *e)
{
    bool alone = c->upstream.n > 0; /* only routers run, which keep nothing */

    return (!alone && listeners_folders(c, e)) || key_files_check(c, e) ? -1 : 0;
}

/* A trial checks the gateway's own folders, then makes a folder and a secret of its own. */
int supervisor_claim_folders(struct supervisor *s, struct err *e)
{
    if (user_check(s->config, e) || check_files(s->config, e))
        return -1;
    if (s->upgrade.is_trial) {
        trial_move_aside(s->config);
        if (check_files(s->config, e))
            return -1;
    }
    s->listeners.aside = s->upgrade.is_trial;
    return listeners_open(&s->listeners, s->config, e);
}
