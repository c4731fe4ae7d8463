/* GET /v1/models and /v1/models/{name}: the served model, and the pools of other engines. */
#include "common/codec/json.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/text/model/model.h"

/* Writes one object that both OpenAI's and Anthropic's clients understand. */
static void write_model(struct service_request *r, const char *name, uint32_t context,
                        struct json_out *o)
{
    json_out_obj(o);
    json_out_member_cstr(o, "id", name);
    json_out_member_cstr(o, "object", "model");
    json_out_member_cstr(o, "type", "model");
    json_out_member_i64(o, "created", (int64_t)r->service->started_s);
    json_out_member_cstr(o, "created_at", "1970-01-01T00:00:00Z");
    json_out_member_cstr(o, "owned_by", "rollgate");
    json_out_member_cstr(o, "display_name", name);
    if (context > 0)
        json_out_member_i64(o, "max_model_len", context);
    json_out_end_obj(o);
}

static const char *own_name(const struct service_request *r)
{
    return model_info(r->service->calls.model)->name;
}

/* Writes the model of the policy's engines. */
static void write_own(struct service_request *r, struct json_out *o)
{
    write_model(r, own_name(r), call_context_length(&r->service->calls), o);
}

struct pools_list {
    struct service_request *r;
    struct json_out *o;
};

static void write_pool(void *ctx, const char *name)
{
    const struct pools_list *l = ctx;

    write_model(l->r, name, 0, l->o);
}

/* `name` is the text after /models: empty, "/", or "/NAME". */
void models_get(struct service_request *r, struct str name)
{
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    struct engine_pool *engines = r->service->calls.engines, *pool;
    struct str asked = str_sub(name, 1, SIZE_MAX);
    struct err e = {0};

    pool = engine_pool_named(engines, asked);
    if (name.len <= 1) {
        json_out_obj(&o);
        json_out_member_cstr(&o, "object", "list");
        json_out_member_arr(&o, "data");
        write_own(r, &o);
        engine_pool_each_name(engines, write_pool, &(struct pools_list){r, &o});
        json_out_end_arr(&o);
        json_out_member_bool(&o, "has_more", false);
        json_out_end_obj(&o);
    } else if (str_eq_c(asked, own_name(r))) {
        write_own(r, &o);
    } else if (pool && engine_pool_name(pool)) {
        write_model(r, engine_pool_name(pool), 0, &o);
    } else {
        (void)err_set(&e, ERR_NOT_FOUND, "no such model");
    }
    if (e.kind == ERR_NONE)
        respond_json(r, &body);
    else
        respond_error(r, NULL, &e);
    buf_done(&body);
}
