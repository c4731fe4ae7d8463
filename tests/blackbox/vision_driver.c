/*
 * Grids of pictures for test_images_grids.py: lines of numbers on stdin, a line each on stdout.
 *
 *     FAMILY PATCH MERGE TEMPORAL MIN_PIXELS MAX_PIXELS MAX_PATCHES SIDE_PATCHES FIXED WIDTH HEIGHT
 *     -> ROWS COLUMNS TOKENS, or "refused"
 */
#include <stdio.h>
#include <stdlib.h>

#include "worker/image/vision.h"

enum { NUMBERS = 11, LINE_MAX_BYTES = 512 };

static void answer(const char *line)
{
    unsigned long long n[NUMBERS];
    struct vision v = {0};
    struct vision_grid g;
    char *end = (char *)(uintptr_t)line;

    for (int i = 0; i < NUMBERS; i++)
        n[i] = strtoull(end, &end, 10);
    v.family = (enum vision_family)n[0];
    v.patch = (uint32_t)n[1];
    v.merge = (uint32_t)n[2];
    v.temporal = (uint32_t)n[3];
    v.min_pixels = n[4];
    v.max_pixels = n[5];
    v.max_patches = (uint32_t)n[6];
    v.side_patches = (uint32_t)n[7];
    v.fixed_tokens = (uint32_t)n[8];
    if (vision_grid(&v, (uint32_t)n[9], (uint32_t)n[10], &g))
        puts("refused");
    else
        printf("%u %u %u\n", g.height, g.width, g.tokens);
}

int main(void)
{
    char line[LINE_MAX_BYTES];

    while (fgets(line, sizeof(line), stdin))
        answer(line);
    return 0;
}
