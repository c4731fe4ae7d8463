/*
 * Pictures in an export. A session stores the ids that were sent, in which each picture is one
 * placeholder. Trainers want the ids that the model read, in which it is a run of placeholders.
 * Expanding is the last step for a trajectory, after all checks of the stored ids.
 */
#ifndef RG_EXPORT_PICTURES_LAYOUT_H
#define RG_EXPORT_PICTURES_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct err;
struct export;
struct json_out;
struct track;
struct trajectory;
struct trajectory_input;

/* Finds the pictures of a trajectory (t->images). Unless the export wants the ids as they were
 * sent, expands their placeholders to runs in every array. The arena must live as long as t. Fails
 * with ERR_UNASSEMBLABLE if the numbers of placeholders and pictures differ. */
int trajectory_expand(const struct trajectory_input *in, bool collapsed, struct arena *a,
                      struct trajectory *t, struct err *e);

/* Returns by how many ids expanding makes the trajectory longer. */
uint64_t track_image_extra(const struct trajectory_input *in, const struct track *t);

/* Writes the member `images` if the trajectory has pictures. */
void images_write(const struct trajectory *t, struct json_out *o);

/* pictures_axes.c: reports whether the model places pictures in rows and columns (mRoPE of the Qwen
 * family), and the ids are expanded. */
bool images_have_axes(const struct export *x);

/* Returns the positions of all ids, in the scratch arena: [4, total], text, time, row, column. */
int64_t *images_axes(struct export *x, const struct trajectory *t);

#endif
