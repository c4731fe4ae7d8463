/* Reads the form of session ids (id_form.h). Bare ids are set with ROLLGATE_SESSION_IDS=bare, or in
 * the gateway's settings file (ROLLGATE_CONFIG). */
#include "worker/commands/id_form.h"

#include "common/base/buf.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"

void id_form_read(void)
{
    char *nothing[] = {(char[]){"rollgate"}, NULL};
    struct buf mistakes = {0};
    struct config *c = config_load_rest(1, nothing, &mistakes);

    ids_set_bare(c->session_ids == SESSION_IDS_BARE);
    config_free(c);
    buf_done(&mistakes);
}
