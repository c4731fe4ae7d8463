#include "worker/api/dialect.h"

#include "common/base/attrs.h"
#include "worker/api/writers.h"

const struct dialect *dialect_for_path(struct str path)
{
    static const struct {
        const char *path;
        const struct dialect *dialect;
    } all[] = {
        {"/chat/completions", &dialect_chat},
        {"/messages", &dialect_messages},
        {"/messages/count_tokens", &dialect_count_tokens},
        {"/responses", &dialect_responses},
        {"/completions", &dialect_completions},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (str_eq_c(path, all[i].path))
            return all[i].dialect;
    return NULL;
}
