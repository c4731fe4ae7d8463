/*
 * The files of ui/ as they lie in the binary (made by scripts/embed_ui.py at build time), and the
 * frame of the self-contained page that `rollgate export --html` writes.
 */
#ifndef RG_VIEWER_ASSETS_H
#define RG_VIEWER_ASSETS_H

#include <stddef.h>

#include "common/base/str.h"

struct viewer_asset {
    const char *name;   /* the file's, without a folder */
    const char *type;   /* Content-Type */
    const char *etag;   /* quoted; of the plain bytes */
    struct str plain;   /* the file */
    struct str gzipped; /* the file for clients that accept gzip */
};

extern const struct viewer_asset viewer_assets[];
extern const size_t viewer_n_assets;

/* What stands before and behind the data of a self-contained page. */
extern const struct str viewer_page_head, viewer_page_tail;

/* NULL: there is no such file. */
const struct viewer_asset *viewer_find(struct str name);

#endif
