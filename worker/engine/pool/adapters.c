/*
 * The table of all kinds of engines. Each kind's adapter lies in a file of its own (wire/,
 * builtin.c); a new kind is one line here. A kind that is not in the table is an error of
 * configuration, named with those that are.
 */
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "worker/engine/pool/adapter.h"

static const struct engine_adapter *const engine_adapters[] = {
    &engine_builtin, &engine_sglang, &engine_vllm, &engine_llamacpp, &engine_openai,
};

const struct engine_adapter *engine_adapter_find(const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(engine_adapters); i++) {
        if (strcmp(engine_adapters[i]->kind, kind) == 0)
            return engine_adapters[i];
    }
    return NULL;
}

bool engine_adapter_lists(const char *list, const char *name)
{
    return list && str_find(str_cstr(list), str_cstr(name), 0) != SIZE_MAX;
}
