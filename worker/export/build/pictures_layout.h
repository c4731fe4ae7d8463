/*
 * Pictures in an export. A session stores the ids that were sent, where each picture is one
 * placeholder; trainers want what the model saw, where it is a run of them. Expanding is the last
 * thing that is done to a trajectory, behind all checks of what is stored.
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

/* Finds the pictures of a trajectory (t->images) and, unless the export wants the ids as they were
 * sent, makes runs of their placeholders in every array. The arena must live as long as t.
 * ERR_UNASSEMBLABLE when placeholders and pictures do not agree. */
int trajectory_expand(const struct trajectory_input *in, bool collapsed, struct arena *a,
                      struct trajectory *t, struct err *e);

/* How many ids the trajectory's pictures are beyond those that are stored. */
uint64_t track_image_extra(const struct trajectory_input *in, const struct track *t);

/* The member `images` of a trajectory that has some. */
void images_write(const struct trajectory *t, struct json_out *o);

/* pictures_axes.c: whether the model places pictures in rows and columns (mRoPE of the Qwen
 * family), and the ids are those that it sees. */
bool images_have_axes(const struct export *x);

/* Positions of all ids, in the scratch arena: [4, total], text, time, row, column. */
int64_t *images_axes(struct export *x, const struct trajectory *t);

#endif
