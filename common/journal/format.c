#include "common/journal/format.h"

/* If earlier versions could not read changed records or framing, raise the number and set the
 * version to the current one. */
const char journal_format_line[] = "rollgate-journal 1 0.1.0\n";
