/*
 * The table itself is made at build time (scripts/embed_ui.py) and lies in a file of its own; this
 * is the one function over it. It has few rows, so they are looked at one by one.
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
