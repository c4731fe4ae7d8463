/* Folders, keys and sockets: what must be ours before anything is started. */
#include "common/proc/config.h"
#include "supervisor/key_files.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

int supervisor_take_place(struct supervisor *s, struct err *e)
{
    bool alone = s->config->upstream.n > 0; /* routers alone keep nothing */

    if (user_check(s->config, e) || (!alone && listeners_folders(s->config, e)) ||
        key_files_check(s->config, e))
        return -1;
    if (s->upgrade.is_trial)
        trial_move_aside(s->config);
    s->listeners.aside = s->upgrade.is_trial;
    return listeners_open(&s->listeners, s->config, e);
}
