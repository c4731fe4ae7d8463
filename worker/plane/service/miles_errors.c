/* Writes errors for miles' clients, which read the text, so some errors have miles' own text
 * (miles_errors.h). */
#include "worker/plane/service/miles_errors.h"

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "common/codec/surrogates.h"

/* Returns the text after /sessions/, up to the next slash. */
static struct str id_in(struct str path)
{
    struct str head = STR("/sessions/"), tail = str_sub(path, head.len, SIZE_MAX);

    return str_starts(path, head) ? str_sub(tail, 0, str_find(tail, STR("/"), 0)) : STR("");
}

void miles_write_error(const struct err *e, struct str path, struct buf *out)
{
    static const struct str json = STR_LIT("JSON: "), engine = STR_LIT("engine: ");

    struct json_out o = json_out_to(out);
    struct buf text = {0}, whole = {0};

    if (e->kind == ERR_UNKNOWN_SESSION || e->kind == ERR_SESSION_ENDED) {
        struct str id = id_in(path);

        buf_printf(&text, "session not found: session_id=%.*s", (int)id.len, id.p);
    } else if (str_starts(str_cstr(e->text), json)) {
        buf_printf(&text, "invalid JSON body: %s", e->text + json.len);
    } else if (e->kind == ERR_ENGINE_REFUSED && str_starts(str_cstr(e->text), engine)) {
        buf_puts(&text, e->text + engine.len);
    } else {
        buf_puts(&text, e->text);
    }
    surrogates_add_whole(buf_str(&text), &whole);
    json_out_obj(&o);
    json_out_member_str(&o, "error", buf_str(&whole));
    json_out_end_obj(&o);
    buf_done(&text);
    buf_done(&whole);
}
