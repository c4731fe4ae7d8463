/* Export options as JSON text, so that the same export can be made again later. */
#ifndef RG_EXPORT_OPTIONS_TEXT_H
#define RG_EXPORT_OPTIONS_TEXT_H

#include "worker/export/build/export.h"

extern const char *const export_select_names[SELECT_COUNT];
extern const char *const export_merge_names[MERGE_COUNT];
extern const char *const export_media_names[MEDIA_COUNT];

/* Appends an object that export_options_json can read: all options except format and metadata. */
void export_options_text(const struct export_options *x, struct buf *ret);

#endif
