/* Packs and opens blocks of a long request (packed_input.h). Four characters become three bytes.
 * The text can be restored exactly, because no padding is inside a block. */
#include "common/serve/packed_input.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/base64.h"

enum { KEPT = PACKED_BLOCK / 4 * 3 };

void packed_input_begin(struct packed_input *p, char *base, size_t whole_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skip = PACKED_ENDS + (page - ((uintptr_t)base + PACKED_ENDS) % page) % page;

    packed_input_done(p);
    if (whole_bytes < PACKED_LEAST)
        return;
    p->base = base;
    p->blocks = base + skip;
    p->n_blocks = (whole_bytes - PACKED_ENDS - skip) / PACKED_BLOCK;
    p->packed = mem_calloc(p->n_blocks, 1);
}

/* Packs a block in place. Returns false if decoding shows that the block is not pure base64. */
static bool pack_block(char *block)
{
    char bytes[KEPT];
    size_t n;

    if (base64_decode(str_of(block, PACKED_BLOCK), bytes, &n) != 0 || n != KEPT)
        return false;
    memcpy(block, bytes, KEPT);
    mem_drop_pages(block + KEPT, PACKED_BLOCK - KEPT);
    return true;
}

void packed_input_add(struct packed_input *p, const char *end)
{
    while (p->seen < p->n_blocks && end >= p->blocks + (p->seen + 1) * PACKED_BLOCK) {
        p->packed[p->seen] = pack_block(p->blocks + p->seen * PACKED_BLOCK);
        p->seen++;
    }
}

bool packed_input_packs(const struct packed_input *p)
{
    return p->seen > 0 && p->packed[p->seen - 1];
}

static void open_block(char *block)
{
    char bytes[KEPT];

    memcpy(bytes, block, KEPT);
    base64_encode(bytes, KEPT, block);
}

void packed_input_open(const struct packed_input *p, struct str part)
{
    size_t i, end;

    if (p->seen == 0 || part.len == 0 || part.p + part.len <= p->blocks)
        return;
    i = part.p > p->blocks ? (size_t)(part.p - p->blocks) / PACKED_BLOCK : 0;
    end = ((size_t)(part.p + part.len - p->blocks) + PACKED_BLOCK - 1) / PACKED_BLOCK;
    for (; i < MIN_OF(end, p->seen); i++) {
        if (p->packed[i])
            open_block(p->blocks + i * PACKED_BLOCK);
        p->packed[i] = 0;
    }
}

void packed_input_done(struct packed_input *p)
{
    free(p->packed);
    *p = (struct packed_input){0};
}
