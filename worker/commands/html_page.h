/* One session as a self-contained page: the viewer with its data inside, for a bug report. */
#ifndef RG_COMMANDS_HTML_PAGE_H
#define RG_COMMANDS_HTML_PAGE_H

#include <stdio.h>

#include "worker/commands/replayed.h"

/* Writes the page: the session's state and all its branches, with their audits where r's model is
 * the session's. -1: the session cannot be read, or the page not be written. */
int html_page_write(struct replayed *r, struct model_scratch *scratch, struct session *s, FILE *to,
                    struct err *e);

#endif
