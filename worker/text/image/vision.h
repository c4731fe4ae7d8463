/*
 * struct vision: computes how many tokens a model family makes of a picture, from its width and
 * height. The numbers are those of the model folder's preprocessor_config.json. Pure.
 */
#ifndef RG_IMAGE_VISION_H
#define RG_IMAGE_VISION_H

#include <stdint.h>

enum vision_family {
    VISION_QWEN, /* Qwen2-VL to Qwen3.6: image_processor_type Qwen2VLImageProcessor */
    VISION_GLM,  /* GLM-4.1V, 4.5V, 4.6V: Glm4vImageProcessor */
    VISION_KIMI, /* Kimi K2.5, K2.6, K3: media_proc_cfg */
};

struct vision {
    enum vision_family family;
    uint32_t patch, merge;           /* pixels per side of a patch; patches per side of a token */
    uint32_t temporal;               /* GLM: frames per patch */
    uint64_t min_pixels, max_pixels; /* limits of the resized picture */
    int32_t pad;                     /* token of a picture's placeholder */
    int32_t banned[4];               /* tokens that no answer may contain, `pad` first */
    uint32_t n_banned;
    /* KIMI: most patches of a picture and of one of its sides; tokens of any picture, or 0 */
    uint32_t max_patches, side_patches, fixed_tokens;
};

/* Number of patches of a picture (time is 1), and of the resulting tokens. */
struct vision_grid {
    uint32_t height, width, tokens;
};

/* Computes the grid. Returns NULL, or why a picture of this size is refused. */
const char *vision_grid(const struct vision *v, uint32_t width, uint32_t height,
                        struct vision_grid *ret);

#endif
