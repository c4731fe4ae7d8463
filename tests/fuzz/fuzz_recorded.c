/* fuzz: rg_worker */
/* Records of the built-in engine: whatever the bytes are, a record is refused with a reason, or
 * every prompt that it has is answered by ids, logprobs and version spans that fit. A prompt that
 * is cut has no answer of the same turn, and the text that says so has an end. */
#include "common/base/arena.h"
#include "common/base/check.h"
#include "common/codec/msgpack_read.h"
#include "worker/engine/builtin/recorded.h"
#include "worker/text/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_turn(const struct recorded_turn *t)
{
    uint32_t at = 0;
    float sum = 0;

    CHECK(t->number > 0 && t->number <= t->n_turns);
    for (size_t i = 0; i < t->ids.n; i++)
        CHECK(t->ids.at[i] >= 0);
    for (size_t i = 0; t->logprobs && i < t->ids.n; i++)
        sum += t->logprobs[i] > 0; /* reads them all */
    CHECK(sum >= 0);
    for (size_t i = 0; i < t->n_versions; i++) {
        CHECK(t->versions[i].start == at && t->versions[i].end > at);
        at = t->versions[i].end;
    }
    CHECK(t->n_versions == 0 || at == t->ids.n);
}

static const struct tokenizer *tokenizer(void)
{
    static struct model *model;
    struct model_options o = {0};
    struct err e = {0};

    if (!model)
        CHECK(model_load(&o, &model, &e) == 0);
    return model_tokenizer(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str bytes = str_of((const char *)data, size), rest = bytes;
    const struct recorded_turn *t;
    struct recorded *r = NULL;
    const struct json *v;
    struct arena a = {0};
    struct err e = {0};

    if (msgpack_read(&a, &rest, &v, &e) == 0)
        CHECK(rest.len < size);
    else
        CHECK(e.kind == ERR_INVALID && rest.len == size);
    arena_done(&a);
    if (recorded_new(bytes, &r, &e)) {
        CHECK(e.kind == ERR_CONFIG && e.text[0]);
        return 0;
    }
    t = recorded_next(r, (struct token_span){0});
    for (int i = 0; t && i < 4; i++) {
        check_turn(t);
        t = t->next;
    }
    recorded_explain(r, (struct token_span){(const int32_t[]){1, 300, 2}, 3}, tokenizer(), &e);
    CHECK(e.kind == ERR_ENGINE_REFUSED);
    recorded_free(r);
    return 0;
}
