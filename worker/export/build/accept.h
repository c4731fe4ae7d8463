/*
 * The export format that an Accept header asks for (RFC 9110, section 12.5.1): the greatest q-value
 * wins, then a format that is named over one that a wildcard covers, then what stands first. Pure.
 */
#ifndef RG_EXPORT_ACCEPT_H
#define RG_EXPORT_ACCEPT_H

#include "worker/export/build/export.h"

/* `otherwise`: what is meant when nothing is asked for, when a wildcard is, and when all that is
 * asked for is unknown. */
enum export_format accept_format(struct str accept, enum export_format otherwise);

#endif
