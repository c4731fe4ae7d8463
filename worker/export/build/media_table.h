/*
 * The pictures of an export: a table in its summary, each picture once, and with media=inline their
 * bytes. The bytes are read when they are sent, a piece at a time, and checked against their hash.
 * If they differ, the export fails.
 */
#ifndef RG_EXPORT_MEDIA_TABLE_H
#define RG_EXPORT_MEDIA_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct export;
struct json_out;
struct trajectory;
struct trajectory_image;

/* Adds the pictures of a trajectory that the table lacks, and gives each its index. Returns -1 if a
 * picture whose bytes are wanted is missing. */
int media_note(struct export *x, struct trajectory *t, struct err *e);

/* Writes the table as the member `media`, if it is wanted and not empty. */
void media_write(struct export *x, struct json_out *o);

/* Reports whether the bytes of pictures are in the export itself. */
bool media_inline(const struct export *x);

/* Writes the address of a picture, as a JSON string in the rope's text: a path of the gateway, or
 * with media=inline a data URL. */
void media_put_url(struct export *x, const struct trajectory_image *image, struct json_out *o);

/* Return the bytes of the table's picture number `place`, and add them to the rope. */
uint64_t media_size(const struct export *x, size_t place);
void media_put_bytes(struct export *x, size_t place);

/* For tensors. The first function writes the pictures of a trajectory: their indexes in the table,
 * positions in the ids, and grids. The second writes the bytes at the end of every pass. */
void media_put_spans(struct export *x, const struct trajectory *t);
void media_put_files(struct export *x);

/* Closes all open pictures. */
void media_drop(struct export *x);

#endif
