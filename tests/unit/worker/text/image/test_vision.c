#include "testing.h"

#include <stdio.h>

#include "worker/text/image/vision.h"

TEST(vision, grids_are_the_published_functions)
{
    FILE *f = fopen(RG_TEST_DATA "/vision/grids.txt", "r");
    char line[256], name[32];
    int n = 0;

    cr_assert(f);
    while (fgets(line, sizeof(line), f)) {
        struct vision v = {.family = VISION_QWEN};
        unsigned long long min, max;
        unsigned w, h, rows, columns;
        struct vision_grid g;
        const char *why;

        if (line[0] == '#')
            continue;
        cr_assert_eq(sscanf(line, "%31s %u %u %llu %llu %u %u %u %u", name, &v.patch, &v.merge,
                            &min, &max, &w, &h, &rows, &columns),
                     9);
        v.min_pixels = min;
        v.max_pixels = max;
        why = vision_grid(&v, w, h, &g);
        cr_expect_eq(why != NULL, rows == 0, "%s", line);
        cr_expect(why || (g.height == rows && g.width == columns && g.tokens == rows * columns / 4),
                  "%s: %u %u", line, g.height, g.width);
        n++;
    }
    (void)fclose(f);
    cr_assert_eq(n, 5000);
}

/* Computed by hand: 2 frames for a patch, 28 pixels for a token. If a side is shorter than a token,
 * both are stretched. */
TEST(vision, glm)
{
    struct vision v = {.family = VISION_GLM,
                       .patch = 14,
                       .merge = 2,
                       .temporal = 2,
                       .min_pixels = 12544,
                       .max_pixels = 11760000};
    struct vision_grid g;

    cr_assert_null(vision_grid(&v, 640, 480, &g));
    cr_expect(g.height == 34 && g.width == 46 && g.tokens == 391);
    cr_assert_null(vision_grid(&v, 14, 28, &g)); /* 28 x 56, and up to 12544 pixels of 2 frames */
    cr_expect(g.height == 8 && g.width == 4, "%u %u", g.height, g.width);
    cr_assert(vision_grid(&v, 1, 201, &g));
}

/* From the tests of engines: a fixed number of tokens for every size. */
TEST(vision, kimi)
{
    struct vision v = {
        .family = VISION_KIMI, .patch = 14, .merge = 2, .max_patches = 65536, .side_patches = 512};
    struct vision_grid g;

    cr_assert_null(vision_grid(&v, 225, 223, &g));
    cr_expect(g.height == 16 && g.width == 18 && g.tokens == 72);
    cr_assert_null(vision_grid(&v, 1, 32768, &g)); /* no aspect ratio is refused */
    cr_expect(g.width == 2 && g.height == 512, "%u %u", g.height, g.width);
    v.fixed_tokens = 64;
    cr_assert_null(vision_grid(&v, 225, 223, &g));
    cr_expect_eq(g.tokens, 64);
}
