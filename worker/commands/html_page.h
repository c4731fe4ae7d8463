/* Writes one session as a self-contained page, for a bug report: the viewer with the session's
 * data. */
#ifndef RG_COMMANDS_HTML_PAGE_H
#define RG_COMMANDS_HTML_PAGE_H

#include <stdio.h>

#include "worker/commands/replayed.h"

/* Writes the page: the session's state and all its branches. Includes their drift audits if r has
 * the session's model. Returns -1 if the session cannot be read or the page cannot be written. */
int html_page_write(struct replayed *r, struct model_scratch *scratch, struct session *s, FILE *to,
                    struct err *e);

#endif
