/* Checks the setting --evaluation-sampling (evaluation.h). */
#include "worker/evaluation.h"

#include "common/codec/input_value.h"
#include "common/codec/json.h"

static const struct input_rule sampling = {.name = "--evaluation-sampling",
                                           .kind = INPUT_KIND_SAMPLING};

int evaluation_check(const char *text, struct err *e)
{
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = text ? json_parse_once(&a, str_cstr(text), &v, e) : 0;

    if (rc == 0 && text && !json_is(v, JSON_OBJECT))
        rc = err_set(e, ERR_CONFIG, "not a JSON object");
    if (rc == 0)
        rc = input_value_check(&a, &sampling, v, false, e);
    arena_done(&a);
    return rc;
}
