#include "common/codec/format_list.h"

/* One string literal per row. */
const char format_list[] =
#define X(id, name, type, symbol) ", " name
#define X_HIDDEN(id, name, type, symbol)
#include "common/codec/export_formats.def"
#undef X
    ;
