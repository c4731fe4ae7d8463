/* fuzz: rg_worker */
/* Any bytes as a body: what is lifted out of it stands where it is said, and put back it is the
 * body, to the byte; nothing is looked at before it is reached. */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/dialect/image_lifts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes are the other way round until they are reached. */
static void turn(struct str part)
{
    char *p = (char *)(uintptr_t)part.p;

    for (size_t i = 0; i < part.len; i++)
        p[i] = (char)~p[i];
}

static void on_reach(void *ctx, struct str part)
{
    (void)ctx;
    turn(part);
}

static void on_gone(void *ctx, struct str part)
{
    (void)ctx;
    memset((void *)(uintptr_t)part.p, 0, part.len); /* it is not looked at again */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct image_lifts l = {
        .least = 1 + size % 8, .max_bytes = 64, .reach = on_reach, .gone = on_gone};
    struct arena a = {0}, b = {0};
    char *tight = mem_calloc(size ? size : 1, 1); /* a reader beyond its end is seen */
    struct str rest;

    if (size > 0)
        memcpy(tight, data, size);
    turn(str_of(tight, size));
    rest = image_lifts_lift(&l, &a, str_of(tight, size));
    for (size_t i = 0; i < l.n; i++) {
        struct str stand_in = l.all[i].stand_in;

        CHECK(image_lifts_find(&l, stand_in) == &l.all[i]);
        CHECK(stand_in.p >= rest.p && stand_in.p + stand_in.len <= rest.p + rest.len);
        CHECK(l.all[i].image.bytes.len <= 64);
    }
    CHECK(str_eq(image_lifts_undo(&l, &b, rest), str_of((const char *)data, size)));
    arena_done(&a);
    arena_done(&b);
    free(tight);
    return 0;
}
