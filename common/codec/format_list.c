#include "common/codec/format_list.h"

/* The compiler joins one string literal for each row. The text begins with a comma and a space. */
const char format_list[] =
#define X(id, name, type, symbol) ", " name
#define X_HIDDEN(id, name, type, symbol)
#include "common/codec/export_formats.def"
#undef X
    ;
