/* The rows of limits.def as a table, and the error of each. */
#include "common/base/limits.h"

#define SETTING(field, unit, bounds, protects, cost) \
    [LIMIT_##field] = {#field, true, 0, unit, bounds, protects, cost},
#define CONSTANT(name, value, unit, bounds, protects, cost) \
    [LIMIT_##name] = {#name, false, value, unit, bounds, protects, cost},
const struct limit_row limit_rows[LIMIT_COUNT] = {
#include "common/base/limits.def"
};

/* Writes a setting's name in the form of its flag. */
static void write_flag(const char *field, char *ret, size_t size)
{
    size_t n = 0;

    for (; field[n] && n + 1 < size; n++)
        ret[n] = field[n] == '_' ? '-' : field[n];
    ret[n] = '\0';
}

int limit_refuse(enum limit limit, const char *field, uint64_t n, uint64_t most, struct err *e)
{
    const struct limit_row *row = &limit_rows[limit];
    char flag[64];

    if (!row->setting)
        return err_field(e, field, "%s: %llu are too many; at most %llu %s are allowed", field,
                         (unsigned long long)n, (unsigned long long)most, row->unit);
    write_flag(row->name, flag, sizeof(flag));
    return err_field(e, field, "%s: %llu are too many; --%s allows %llu %s", field,
                     (unsigned long long)n, flag, (unsigned long long)most, row->unit);
}

int limit_check(enum limit constant, const char *field, uint64_t n, struct err *e)
{
    uint64_t most = limit_rows[constant].most;

    return n <= most ? 0 : limit_refuse(constant, field, n, most, e);
}
