/* fuzz: rg_tokens */
/* Any bytes as SentencePiece's compiled rules: refused with a text, or rules that make valid UTF-8
 * of valid UTF-8, and tell an alignment inside it. */
#include <stdlib.h>

#include "common/base/budget.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/codec/base64.h"
#include "worker/text/tokens/charsmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct charsmap *m)
{
    struct str text =
        STR("a e\xcc\x81 \xef\xac\x81\r\n\xe2\x84\xa2 \xe1\x84\x80\xe1\x85\xa1 \xf0\x9f\x98\x80");
    struct budget budget;
    struct buf out = {0};
    size_t head = 1;

    budget_init(&budget, 1 << 20, 64 << 20, 0, NULL);
    if (charsmap_apply(m, text, &budget, &head, &out)) {
        CHECK(utf8_valid(buf_str(&out)));
        CHECK(head <= out.len);
    } else {
        CHECK(head == 1);
    }
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = base64_encoded_len(size);
    char *text = mem_calloc(n + 1, 1);
    struct charsmap m;
    struct err e = {0};

    base64_encode(data, size, text);
    if (charsmap_parse(&m, str_of(text, n), &e) == 0) {
        use(&m);
        charsmap_done(&m);
    } else {
        CHECK(e.kind == ERR_CONFIG && e.text[0]);
    }
    free(text);
    return 0;
}
