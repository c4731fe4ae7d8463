/*
 * The files of ui/, embedded in the binary by scripts/embed_ui.py at build time, and the frame of
 * the self-contained page that `rollgate export --html` writes.
 */
#ifndef RG_VIEWER_ASSETS_H
#define RG_VIEWER_ASSETS_H

#include <stddef.h>

#include "common/base/str.h"

struct viewer_asset {
    const char *name;   /* name of the file, without its folder */
    const char *type;   /* Content-Type */
    const char *etag;   /* ETag of the plain bytes, with quotes */
    struct str plain;   /* bytes of the file */
    struct str gzipped; /* bytes of the file, compressed for clients that accept gzip */
};

extern const struct viewer_asset viewer_assets[];
extern const size_t viewer_n_assets;

/* Text before and after the data of a self-contained page. */
extern const struct str viewer_page_head, viewer_page_tail;

/* Returns the file with that name, or NULL. */
const struct viewer_asset *viewer_find(struct str name);

#endif
