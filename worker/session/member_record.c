/* Members become the text of one object, which is parsed as any other (member_record.h). */
#include "worker/session/member_record.h"

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "worker/session/record.h"

int member_record_read(struct str text, struct arena *a, const struct json **ret, struct err *e)
{
    struct record_in r = record_in_of(text.p ? text : STR(""));
    uint32_t n = record_u32(&r);
    struct buf object = {0};
    int rc = -1;

    buf_add_c(&object, '{');
    for (uint32_t i = 0; i < n && !r.bad; i++) {
        struct str key = record_str(&r), value = record_str(&r);

        r.bad = r.bad || !key.p || !value.p;
        if (r.bad)
            break;
        if (i > 0)
            buf_add_c(&object, ',');
        json_write_string(&object, key);
        buf_add_c(&object, ':');
        buf_add_str(&object, value);
    }
    buf_add_c(&object, '}');
    if (!r.bad && r.p == r.end)
        rc = json_parse(a, arena_str(a, buf_str(&object)), ret, e);
    buf_done(&object);
    return rc == 0 ? 0 : err_set(e, ERR_IO, "session record: torn members");
}
