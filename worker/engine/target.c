#include "worker/engine/target.h"

#include <stdlib.h>

static int number_of(struct str value, double *ret)
{
    char text[32];
    char *end;

    if (value.len == 0 || value.len >= sizeof(text))
        return -1;
    memcpy(text, value.p, value.len);
    text[value.len] = '\0';
    *ret = strtod(text, &end);
    return *end == '\0' && *ret >= 0 && *ret <= 1e9 ? 0 : -1;
}

/* One name=value behind a comma. Returns 0, or -1 when it is no option (then it belongs to REST).
 */
static int option_known(struct str name)
{
    static const char *const names[] = {"weight", "key-file", "token-ids", "delay_ms",
                                        "tokens_per_s"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq_c(name, names[i]))
            return 0;
    }
    return -1;
}

static int option_set(struct arena *a, struct str name, struct str value, struct engine_target *t,
                      struct err *e)
{
    double number = 0;

    if (str_eq_c(name, "key-file")) {
        t->key_file = arena_cstr(a, value);
        return 0;
    }
    if (str_eq_c(name, "token-ids")) {
        if (!str_eq_c(value, "vllm") && !str_eq_c(value, "sglang"))
            return err_set(e, ERR_CONFIG, "engine option token-ids is vllm or sglang");
        t->ids_of = arena_cstr(a, value);
        return 0;
    }
    if (number_of(value, &number))
        return err_set(e, ERR_CONFIG, "engine option %.*s is not a number", (int)name.len, name.p);
    if (str_eq_c(name, "weight"))
        t->weight = number;
    else if (str_eq_c(name, "delay_ms"))
        t->delay_ms = (uint64_t)number;
    else
        t->tokens_per_s = number;
    return 0;
}

/* Cuts known options off the end of *rest, last first. */
static int take_options(struct arena *a, struct str *rest, struct engine_target *t, struct err *e)
{
    for (;;) {
        size_t comma = rest->len;
        struct str part;
        size_t eq;

        while (comma > 0 && rest->p[comma - 1] != ',')
            comma--;
        if (comma == 0)
            return 0;
        part = str_sub(*rest, comma, SIZE_MAX);
        eq = str_find(part, STR("="), 0);
        if (eq == SIZE_MAX || option_known(str_sub(part, 0, eq)))
            return 0;
        if (option_set(a, str_sub(part, 0, eq), str_sub(part, eq + 1, SIZE_MAX), t, e))
            return -1;
        rest->len = comma - 1;
    }
}

int engine_target_parse(struct arena *a, const char *text, struct engine_target *ret, struct err *e)
{
    struct str all = str_cstr(text);
    struct str rest = all;
    size_t colon;

    *ret = (struct engine_target){.weight = 1.0};
    if (take_options(a, &rest, ret, e))
        return -1;
    ret->name = arena_cstr(a, rest);
    colon = str_find(rest, STR(":"), 0);
    ret->kind = arena_cstr(a, str_sub(rest, 0, colon == SIZE_MAX ? rest.len : colon));
    ret->rest = colon == SIZE_MAX ? "" : arena_cstr(a, str_sub(rest, colon + 1, SIZE_MAX));
    if (!engine_adapter_find(ret->kind))
        return err_set(e, ERR_CONFIG, "unknown engine kind '%s' in '%s'", ret->kind, ret->name);
    return 0;
}
