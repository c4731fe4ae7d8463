/* fuzz: rg_worker */
#include "worker/sink/pieces.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int find(struct str s, struct pieces *ret)
{
    struct err e = {0};
    int rc = pieces_find(s, ret, &e);

    CHECK(rc == 0 || e.kind == ERR_IO);
    return rc;
}

/* A piece alone in an envelope of its own is found again, whole. */
static void check_alone(struct str piece)
{
    static const char head[] = "\x81\xactrajectories\x91";
    size_t n = sizeof(head) - 1;
    char *alone = malloc(n + piece.len);
    struct pieces p = {0};

    CHECK(alone);
    memcpy(alone, head, n);
    memcpy(alone + n, piece.p, piece.len);
    CHECK(find(str_of(alone, n + piece.len), &p) == 0);
    CHECK(p.n == 1 && p.at[0].start == n && p.at[0].len == piece.len);
    vec_done(&p);
    free(alone);
}

/* A note is never longer than what it was read from, and no cut of an envelope is read beyond. */
static void check_notes(struct str s)
{
    static const char *const names[] = {"group", "rollout", "session_id", "trajectories"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct buf text = {0};

        if (pieces_note(s, names[i], &text))
            CHECK(text.len <= MAX_OF(s.len, (size_t)20));
        else
            CHECK(text.len == 0);
        buf_done(&text);
    }
}

/* Whatever the bytes are: pieces lie within them, in order and apart; no cut envelope is whole. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *exact = malloc(MAX_OF(size, (size_t)1)); /* exactly so long: reads beyond it are found */
    struct pieces p = {0}, less = {0};
    size_t at = 0;

    CHECK(exact);
    memcpy(exact, data, size);
    if (find(str_of(exact, size), &p) == 0) {
        for (size_t i = 0; i < p.n; i++) {
            CHECK(p.at[i].start >= at && p.at[i].len > 0);
            at = p.at[i].start + p.at[i].len;
            CHECK(at <= size);
        }
        if (p.n > 0)
            check_alone(str_of(exact + p.at[size % p.n].start, p.at[size % p.n].len));
        if (at > 0)
            CHECK(find(str_of(exact, at - 1), &less) == -1);
    }
    check_notes(str_of(exact, size));
    vec_done(&p);
    vec_done(&less);
    free(exact);
    return 0;
}
