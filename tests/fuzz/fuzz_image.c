/* fuzz: rg_image */
/* Any bytes as a picture: refused with a text, or sides and an orientation within their bounds, of
 * which every family makes a grid or says why not. */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "worker/text/image/image_header.h"
#include "worker/text/image/vision.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_grid(const struct vision *v, const struct image_header *h)
{
    struct vision_grid g;
    const char *why = vision_grid(v, h->width, h->height, &g);

    if (why)
        CHECK(why[0]);
    else
        CHECK(g.tokens > 0 && g.height % v->merge == 0 && g.width % v->merge == 0 &&
              g.tokens == g.height / v->merge * (g.width / v->merge));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct vision qwen = {.family = VISION_QWEN,
                                       .patch = 16,
                                       .merge = 2,
                                       .min_pixels = 65536,
                                       .max_pixels = 16777216};
    static const struct vision glm = {.family = VISION_GLM,
                                      .patch = 14,
                                      .merge = 2,
                                      .temporal = 2,
                                      .min_pixels = 12544,
                                      .max_pixels = 11760000};
    static const struct vision kimi = {
        .family = VISION_KIMI, .patch = 14, .merge = 2, .max_patches = 16384, .side_patches = 512};
    char *tight = mem_calloc(size ? size : 1, 1); /* a reader beyond its end is seen */
    struct image_header h;
    const char *why;

    if (size > 0)
        memcpy(tight, data, size);
    why = image_header_read(str_of(tight, size), &h);
    if (why) {
        CHECK(why[0]);
    } else {
        CHECK(h.width > 0 && h.width <= IMAGE_SIDE_MAX && h.height > 0 &&
              h.height <= IMAGE_SIDE_MAX);
        CHECK((uint64_t)h.width * h.height <= IMAGE_PIXELS_MAX);
        CHECK(h.orientation >= 1 && h.orientation <= 8 && h.format < IMAGE_FORMATS);
        make_grid(&qwen, &h);
        make_grid(&glm, &h);
        make_grid(&kimi, &h);
    }
    free(tight);
    return 0;
}
