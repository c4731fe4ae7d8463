/* fuzz: rg_supervisor */
/* The file of GET /sessions/{id}/tokens, as `rollgate session show` reads it. */

#include "common/base/check.h"
#include "common/base/err.h"
#include "supervisor/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct token_file f;
    struct err e = {0};
    float sum = 0;

    if (token_file_read(&f, str_of((const char *)data, size), &e) == 0) {
        CHECK(f.n <= f.total);
        for (uint32_t i = 0; i < f.total; i++)
            (void)token_file_text(&f, f.ids[i]);
        for (uint32_t i = 0; i < f.n; i++)
            sum += (f.logprobs ? f.logprobs[i] : 0) + (f.trained ? f.trained[i] : 0);
        CHECK(f.n == 0 || f.logprobs || f.trained || sum == 0);
    } else {
        CHECK(e.kind != ERR_NONE);
    }
    token_file_done(&f);
    return 0;
}
