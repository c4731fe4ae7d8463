#include "worker/text/tokens/span.h"

#include <string.h>

#include "common/base/attrs.h"

void token_parts_copy(struct token_parts p, size_t from, size_t n, int32_t *out)
{
    for (size_t i = 0; i < p.n_parts && n > 0; i++) {
        struct token_span part = p.parts[i];
        size_t skipped = MIN_OF(from, part.n), some = MIN_OF(n, part.n - skipped);

        if (some > 0)
            memcpy(out, part.at + skipped, some * sizeof(*out));
        from -= skipped;
        out += some;
        n -= some;
    }
}
