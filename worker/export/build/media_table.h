/*
 * The pictures of an export: a table in its summary, each once, and where media=inline wants them
 * their bytes. Those are read as they go out, a piece at a time, and held against their hash: the
 * export fails where they are others.
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

/* Adds the pictures of a trajectory that the table lacks, and gives each its index. -1: a picture
 * whose bytes are wanted is missing. */
int media_note(struct export *x, struct trajectory *t, struct err *e);

/* The table as the member `media`, when there is something in it and it is wanted. */
void media_write(struct export *x, struct json_out *o);

/* Whether pictures stand in the export itself. */
bool media_inline(const struct export *x);

/* Writes where a picture is found, as a JSON string in the rope's text: a path of the gateway, or
 * with media=inline a data URL. */
void media_put_url(struct export *x, const struct trajectory_image *image, struct json_out *o);

/* How many bytes the table's picture number `place` has; and puts them behind the rope's text. */
uint64_t media_size(const struct export *x, size_t place);
void media_put_bytes(struct export *x, size_t place);

/* Tensors: of each trajectory its pictures' places in the table, in the ids, and their grids; and,
 * at the end of every pass, the bytes. */
void media_put_spans(struct export *x, const struct trajectory *t);
void media_put_files(struct export *x);

/* Closes all open pictures. */
void media_drop(struct export *x);

#endif
