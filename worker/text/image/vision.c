/* The order of operations on doubles is that of the families' published processors. A sum or a
 * product in a different order would give different sizes at exact halves. */
#include "worker/text/image/vision.h"

#include <math.h>

#include "common/base/attrs.h"

enum { ASPECT_MAX = 200, TOKENS_MAX = 1 << 20 };

/* Rounds the sides to multiples of `factor`, with frames * h * w between the bounds. nearbyint
 * rounds halves to even, as Python does. */
static void fit_sides(const struct vision *v, double frames, double side[2])
{
    double factor = (double)v->patch * v->merge;
    double max = (double)v->max_pixels, min = (double)v->min_pixels;
    double whole = frames * side[0] * side[1], out[2];

    for (int i = 0; i < 2; i++)
        out[i] = nearbyint(side[i] / factor) * factor;
    if (frames * out[0] * out[1] > max) {
        double shrink = sqrt(whole / max);

        for (int i = 0; i < 2; i++)
            out[i] = fmax(factor, floor(side[i] / shrink / factor) * factor);
    } else if (frames * out[0] * out[1] < min) {
        double grow = sqrt(min / whole);

        for (int i = 0; i < 2; i++)
            out[i] = ceil(side[i] * grow / factor) * factor;
    }
    side[0] = out[0];
    side[1] = out[1];
}

/* Enlarges a picture whose shorter side is below one token, as GLM does. */
static void stretch_sides(const struct vision *v, double side[2])
{
    double factor = (double)v->patch * v->merge;
    double scale = fmax(factor / side[0], factor / side[1]);

    if (side[0] >= factor && side[1] >= factor)
        return;
    side[0] = trunc(side[0] * scale);
    side[1] = trunc(side[1] * scale);
}

/* Shrinks to Kimi's limits of patches, and pads to whole tokens. */
static void shrink_and_pad(const struct vision *v, double side[2])
{
    double patch = v->patch, factor = patch * v->merge, limit = (double)v->side_patches * patch;
    double across = fmax(1, floor(side[1] / patch)), down = fmax(1, floor(side[0] / patch));
    double scale = fmin(1, sqrt(v->max_patches / (across * down)));

    scale = fmin(scale, fmin(limit / side[1], limit / side[0]));
    for (int i = 0; i < 2; i++)
        side[i] = ceil(fmin(fmax(1, trunc(side[i] * scale)), limit) / factor) * factor;
}

/* Rounds the sides as the family does. Returns NULL, or why the picture is refused. */
static const char *resize_sides(const struct vision *v, double side[2])
{
    double frames = 1;

    if (v->family == VISION_KIMI) {
        shrink_and_pad(v, side);
        return NULL;
    }
    if (v->family == VISION_GLM) {
        frames = v->temporal;
        stretch_sides(v, side);
    }
    if (fmax(side[0], side[1]) / fmin(side[0], side[1]) > ASPECT_MAX)
        return "one side is more than 200 times the other";
    fit_sides(v, frames, side);
    return NULL;
}

const char *vision_grid(const struct vision *v, uint32_t width, uint32_t height,
                        struct vision_grid *ret)
{
    double side[2] = {height, width};
    const char *why = resize_sides(v, side);

    *ret = (struct vision_grid){0};
    if (why)
        return why;
    if (side[0] * side[1] / v->patch / v->patch / v->merge / v->merge > TOKENS_MAX)
        return "it would be more than a million tokens";
    ret->height = (uint32_t)side[0] / v->patch;
    ret->width = (uint32_t)side[1] / v->patch;
    ret->tokens = ret->height * ret->width / (v->merge * v->merge);
    if (v->fixed_tokens > 0)
        ret->tokens = v->fixed_tokens;
    return ret->tokens ? NULL : "it is too small for a token";
}
