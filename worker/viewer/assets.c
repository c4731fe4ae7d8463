/*
 * Finds files of the viewer. scripts/embed_ui.py generates the table at build time as a separate
 * file. It has few rows, so the search is linear.
 */
#include "worker/viewer/assets.h"

const struct viewer_asset *viewer_find(struct str name)
{
    for (size_t i = 0; i < viewer_n_assets; i++) {
        if (str_eq_c(name, viewer_assets[i].name))
            return &viewer_assets[i];
    }
    return NULL;
}
