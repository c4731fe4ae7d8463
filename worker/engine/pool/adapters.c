/* The table of all kinds of engines. */
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "worker/engine/pool/adapter.h"

static const struct engine_adapter *const engine_adapters[] = {
#define X(name) &engine_##name,
#include "worker/engine/pool/engine_kinds.def"
#undef X
};

static const char kinds[] =
#define X(name) ", " #name
#include "worker/engine/pool/engine_kinds.def"
#undef X
    ;

const char *const engine_kinds = kinds + 2;

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
