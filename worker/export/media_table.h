/*
 * The pictures of an export: a table in its summary, each once, and where media=inline wants them
 * their bytes. Those are read as they go out, a piece at a time, and held against their hash: the
 * export fails where they are others.
 */
#ifndef RG_EXPORT_MEDIA_TABLE_H
#define RG_EXPORT_MEDIA_TABLE_H

#include "worker/export/export_format.h"
#include "worker/media/media_store.h"
#include "worker/request/images.h"

struct export_picture {
    struct export *x;
    const struct json *part; /* the session's */
    struct image_part is;    /* what the part says */
    struct rope_source source;
    struct media_file file; /* while it is read: `hash` is there */
    struct sha256 *hash;
};

/* Adds the pictures of a trajectory that the table lacks, and tells each its place in it. -1: one
 * whose bytes are wanted is not there. */
int media_note(struct export *x, struct trajectory *t, struct err *e);

/* The table as the member `media`, when there is something in it and it is wanted. */
void media_write(struct export *x, struct json_out *o);

/* Whether pictures stand in the export itself. */
bool media_inline(const struct export *x);

/* Where a picture is found, as a JSON string in the rope's text: a path of the gateway, or with
 * media=inline a data URL. */
void media_put_url(struct export *x, const struct trajectory_image *image, struct json_out *o);

/* Tensors: of each trajectory its pictures' places in the table, in the ids, and their grids; and,
 * at the end of every pass, the bytes. */
void media_put_spans(struct export *x, const struct trajectory *t);
void media_put_files(struct export *x);

/* Closes what is open. */
void media_drop(struct export *x);

#endif
