/* The table of formats. */
#include "worker/export/build/export_format.h"

const struct format_row export_formats[EXPORT_FORMAT_COUNT] = {
#define X(id, name, type, symbol) [EXPORT_##id] = {name, type, &symbol, false},
#define X_HIDDEN(id, name, type, symbol) [EXPORT_##id] = {name, type, &symbol, true},
#include "common/codec/export_formats.def"
#undef X
};
