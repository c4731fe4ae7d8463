/* Reads a snapshot (import_reading.h). The frames are decoded into memory of their own, while the
 * body is freed picture by picture (import_pictures.c). */
#include "worker/plane/control/import_reading.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/crc32c.h"
#include "common/codec/json.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/serve/exchange.h"
#include "worker/plane/call/call_rules.h"
#include "worker/plane/control/import_pictures.h"
#include "worker/plane/service/service.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"
#include "worker/text/request/request_limits.h"

struct import_reading {
    struct exchange *x; /* exchange of the body */
    struct arena arena;
    struct request_limits limits;
    struct snapshot_target to; /* id and time of the new session */
    struct snapshot_records records;
    struct import_pictures pictures;
    struct str from; /* id of the snapshot's session; absent: unknown */
    char id[ID_TEXT_MAX];
};

struct import_reading *import_reading_new(const struct service_request *request, uint64_t now_ms)
{
    struct import_reading *r = mem_zalloc(sizeof(*r));
    struct call_env *env = &request->service->calls;
    uint32_t index = request->service->heritage->index;

    r->arena.sum = &env->request_bytes;
    r->x = request->x;
    r->limits = env->rules->limits;
    r->to = (struct snapshot_target){.trial = snapshot_trial(env->store),
                                     .id = str_of(r->id, ids_session(env->ids, index, r->id)),
                                     .now_ms = now_ms};
    r->pictures = (struct import_pictures){.store = env->media,
                                           .x = request->x,
                                           .session_id = r->to.id,
                                           .vision = model_info(env->model)->vision,
                                           .image_bytes = env->rules->images.image_bytes};
    return r;
}

void import_reading_free(struct import_reading *r)
{
    session_store_free(r->to.trial);
    vec_done(&r->records.all);
    vec_done(&r->records.images);
    arena_done(&r->arena);
    free(r);
}

struct str import_reading_id(const struct import_reading *r)
{
    return r->to.id;
}

uint64_t import_reading_now_ms(const struct import_reading *r)
{
    return r->to.now_ms;
}

struct str import_reading_from(const struct import_reading *r)
{
    return r->from;
}

size_t import_reading_records(const struct import_reading *r)
{
    return r->records.all.n;
}

struct str import_reading_record(const struct import_reading *r, size_t i)
{
    return r->records.all.at[i];
}

bool import_reading_stored(const struct import_reading *r)
{
    return r->pictures.stored;
}

static int64_t number_of(const struct json *body, const char *name)
{
    int64_t v = -1;

    (void)json_to_i64(json_get(body, name), &v);
    return v;
}

/* Decodes the frames into the arena. */
static int read_records(struct import_reading *r, const struct json *body, struct str *ret,
                        struct err *e)
{
    struct str text = json_string(json_get(body, "records"));
    size_t n = 0;
    char *p;
    int rc;

    if (number_of(body, "version") != SNAPSHOT_VERSION)
        return err_field(e, "version", "version must be %d", SNAPSHOT_VERSION);
    if (!text.p)
        return err_field(e, "records", "records is required: a snapshot's, as GET told it");
    p = arena_alloc_alone(&r->arena, base64_room(text.len) + 1);
    rc = base64_decode(text, p, &n);
    *ret = str_of(p, n);
    import_drop_text(r->x, text);
    if (rc != 0)
        return err_field(e, "records", "records must be base64");
    if (number_of(body, "crc32c") != (int64_t)crc32c(0, p, n))
        return err_field(e, "crc32c", "crc32c is not that of the records (%u)", crc32c(0, p, n));
    return 0;
}

/* Parses the body as an object, within the limits of a request. Returns NULL in *ret if there is
 * none. The body's size was checked before (worker/plane/api/inputs.h). */
static int parse_body(struct import_reading *r, const struct json **ret, struct err *e)
{
    struct str body = str_trim(exchange_body(r->x));

    if (body.len == 0)
        return 0;
    r->arena.max_bytes = request_limits_budget(&r->limits, body.len);
    if (json_parse(&r->arena, body, ret, e) != 0)
        return e->kind == ERR_BODY_TOO_LARGE ? request_limits_memory(&r->limits, &r->arena, e) : -1;
    r->arena.max_bytes = 0;
    return 0;
}

/* Applies the records, which are copies with the new id. Frees the temporary store and the original
 * records here, because that would take long on the loop if there are many. */
static int apply_records(struct import_reading *r, const struct json *body, struct err *e)
{
    struct str frames = {0};
    int rc = read_records(r, body, &frames, e);

    if (rc == 0)
        rc = snapshot_read(&r->to, frames, &r->arena, &r->records, e);
    session_store_free(r->to.trial);
    r->to.trial = NULL;
    arena_drop(&r->arena, frames.p);
    return rc;
}

int import_reading_run(struct import_reading *r, struct err *e)
{
    const struct json *body = NULL;
    struct str from;

    if (parse_body(r, &body, e) || apply_records(r, body, e))
        return -1;
    from = json_string(json_get(body, "session_id"));
    r->from = from.p ? arena_str(&r->arena, from) : from;
    r->pictures.images = r->records.images.at;
    r->pictures.n = r->records.images.n;
    return import_pictures(&r->pictures, &r->arena, body, e);
}
