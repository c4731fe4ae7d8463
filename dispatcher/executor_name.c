#include "dispatcher/executor_name.h"

#include <string.h>

#include "common/codec/fields.h"
#include "dispatcher/desk.h"

int executor_name_read(struct desk_request *r, char ret[EXECUTOR_MAX + 1], struct err *e)
{
    struct field_reader f = {.body = r->body, .e = e};
    struct str name = {0};

    if (fields_text(&f, "executor", EXECUTOR_MAX, &name))
        return -1;
    if (!name.p)
        name = r->executor;
    if (!name.p || name.len == 0)
        return err_field(e, "executor", "executor must be a string of 1 to %d bytes", EXECUTOR_MAX);
    if (r->executor.p && !str_eq(name, r->executor) &&
        !(str_starts(name, r->executor) && name.len > r->executor.len &&
          name.p[r->executor.len] == '/'))
        return err_set(e, ERR_WRONG_SCOPE, "the key belongs to another executor");
    memcpy(ret, name.p, name.len);
    ret[name.len] = '\0';
    return 0;
}
