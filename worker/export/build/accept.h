/*
 * Chooses the export format for an Accept header (RFC 9110, section 12.5.1): the greatest q-value
 * wins, then a named format over one that a wildcard covers, then the first in the header. Pure.
 */
#ifndef RG_EXPORT_ACCEPT_H
#define RG_EXPORT_ACCEPT_H

#include "worker/export/build/export.h"

/* Returns the format. `otherwise`: the result if the header is absent, if a wildcard wins, or if
 * all its types are unknown. */
enum export_format accept_format(struct str accept, enum export_format otherwise);

#endif
