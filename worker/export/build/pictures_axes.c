/* Positions of a trajectory's ids for models that place pictures in rows and columns
 * (pictures_layout.h). The positions of a text continue after the larger side of the picture before
 * it. */
#include "worker/export/build/export_format.h"
#include "worker/export/build/pictures_layout.h"
#include "worker/text/image/vision.h"
#include "worker/text/model/model.h"
#include "worker/text/request/images.h"

/* Fills the axes of one picture that begins at position `at`: rows of its tokens, one after the
 * other. */
static void fill_axes(const struct vision *v, const struct trajectory_image *image, int64_t at,
                      int64_t *axes[3])
{
    struct image_part p;
    uint32_t width;

    image_part_read(image->part, &p);
    width = p.grid[2] / v->merge;
    for (uint32_t k = 0; k < image->length; k++) {
        axes[0][image->offset + k] = at;
        axes[1][image->offset + k] = at + k / width;
        axes[2][image->offset + k] = at + k % width;
    }
}

/* Returns the position at which the text after a picture continues. */
static int64_t behind_image(const struct vision *v, const struct trajectory_image *image)
{
    struct image_part p;

    image_part_read(image->part, &p);
    return MAX_OF(p.grid[1], p.grid[2]) / v->merge;
}

bool images_have_axes(const struct export *x)
{
    const struct vision *v = x->input.model ? model_info(x->input.model)->vision : NULL;

    return v && v->family == VISION_QWEN && !x->options.collapsed_ids;
}

int64_t *images_axes(struct export *x, const struct trajectory *t)
{
    const struct vision *v = model_info(x->input.model)->vision;
    int64_t *all = arena_calloc(&x->scratch, (size_t)t->total * 4 + 1, sizeof(*all));
    int64_t *axes[3] = {all + t->total, all + (size_t)t->total * 2, all + (size_t)t->total * 3};
    uint32_t image = 0;
    int64_t at = 0;

    for (uint32_t i = 0; i < t->total; i++)
        all[i] = i;
    for (uint32_t i = 0; i < t->total;) {
        if (image < t->n_images && t->images[image].offset == i) {
            fill_axes(v, &t->images[image], at, axes);
            at += behind_image(v, &t->images[image]);
            i += t->images[image++].length;
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(axes); k++)
            axes[k][i] = at;
        at++;
        i++;
    }
    return all;
}
