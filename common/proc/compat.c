/* Profiles of settings (compat.h). A profile is applied last, to settings that no other source has
 * set. So the profile's own name may come from any source. */
#include "common/proc/compat.h"

struct compat_row {
    enum config_COMPAT profile;
    const char *flag, *value, *why;
};

static const struct compat_row rows[] = {
#define P(profile_, flag_, value_, why_) \
    {.profile = COMPAT_##profile_, .flag = (flag_), .value = (value_), .why = (why_)},
#include "common/proc/compat.def"
#undef P
};

void compat_apply(struct config_load *l)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct config_row *row = config_row_find(str_cstr(rows[i].flag));

        if ((int)rows[i].profile == l->config->compat &&
            l->source[row - config_rows] == CONFIG_FROM_DEFAULT)
            config_set(l, row, str_cstr(rows[i].value), CONFIG_FROM_PROFILE, "--compat");
    }
}

const char *compat_why(const struct config *c, const struct config_row *row, struct str value)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if ((int)rows[i].profile == c->compat && str_eq_c(str_cstr(rows[i].flag), row->flag) &&
            str_eq_c(value, rows[i].value))
            return rows[i].why;
    return NULL;
}
