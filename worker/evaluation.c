/* The setting --evaluation-sampling (evaluation.h). */
#include "worker/evaluation.h"

#include "worker/api/inputs.h"

int evaluation_check(const char *text, struct err *e)
{
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = text ? json_parse_once(&a, str_cstr(text), &v, e) : 0;

    if (rc == 0 && text && !json_is(v, JSON_OBJECT))
        rc = err_set(e, ERR_CONFIG, "not a JSON object");
    if (rc == 0)
        rc = inputs_check_sampling(v, e);
    arena_done(&a);
    return rc;
}
