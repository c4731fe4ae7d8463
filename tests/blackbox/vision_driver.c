/*
 * Grids and headers of pictures for test_images_grids.py and test_images_headers.py: lines on
 * stdin, a line each on stdout.
 *
 *     FAMILY PATCH MERGE TEMPORAL MIN_PIXELS MAX_PIXELS MAX_PATCHES SIDE_PATCHES FIXED WIDTH HEIGHT
 *     -> ROWS COLUMNS TOKENS, or "refused"
 *     /PATH of a picture
 *     -> FORMAT WIDTH HEIGHT ORIENTATION LEAST (of its first bytes, how many are taken for a whole
 *        picture), or "refused: WHY"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/os/file.h"
#include "worker/text/image/image_header.h"
#include "worker/text/image/vision.h"

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

/* Reports whether the bytes are accepted as a whole picture. They are in memory of exactly that
 * size, so that sanitizers detect reads after the end. */
static bool is_taken(struct str bytes)
{
    struct image_header h;
    char *tight = mem_alloc(bytes.len ? bytes.len : 1);
    bool taken;

    if (bytes.len)
        memcpy(tight, bytes.p, bytes.len);
    taken = !image_header_read(str_of(tight, bytes.len), &h);
    free(tight);
    return taken;
}

static void tell(const char *path)
{
    struct buf file = {0};
    struct image_header h;
    struct err e = {0};
    const char *why;
    size_t least = 0;

    if (file_read(path, 1 << 24, &file, &e)) {
        printf("unread: %s\n", e.text);
        return;
    }
    why = image_header_read(buf_str(&file), &h);
    while (least < file.len && !is_taken(str_sub(buf_str(&file), 0, least)))
        least++;
    if (why)
        printf("refused: %s\n", why);
    else
        printf("%s %u %u %u %zu\n", image_format_name(h.format), h.width, h.height, h.orientation,
               least);
    buf_done(&file);
}

int main(void)
{
    char line[LINE_MAX_BYTES];

    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '/')
            tell(line);
        else
            answer(line);
    }
    return 0;
}
