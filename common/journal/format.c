#include "common/journal/format.h"

/* Raise the number, and set the version to this one, when records or framing change so that earlier
 * versions cannot read them. */
const char journal_format_line[] = "rollgate-journal 1 0.1.0\n";
