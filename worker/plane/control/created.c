/* What a client learns of a session that was made for it: its id, its URLs and its keys. */
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"

/* The authority that the client used: behind a proxy the first one that X-Forwarded-Host has. */
static struct str client_authority(const struct service_request *r)
{
    struct str list = exchange_header(r->x, "x-forwarded-host");
    struct str first = str_trim(str_sub(list, 0, str_find(list, STR(","), 0)));

    return first.len > 0 ? first : exchange_authority(r->x);
}

/* Writes the beginning of the session's URLs: --public-url, or the address that the client used. */
static void write_front(struct service_request *r, struct buf *url)
{
    struct str front = str_cstr(r->service->config->public_url);
    struct str host = client_authority(r);
    struct str proto = exchange_header(r->x, "x-forwarded-proto");

    if (str_eq_c(front, "node"))
        buf_printf(url, "http://%s", r->service->config->fleet_address);
    else if (front.len == 0)
        buf_printf(url, "%s://%.*s", str_eq_c(proto, "https") ? "https" : "http", (int)host.len,
                   host.p);
    else
        buf_add_str(url, str_sub(front, 0, front.len - str_ends(front, STR("/"))));
}

void control_write_origin(struct service_request *r, struct buf *headers)
{
    struct str host = client_authority(r), proto = exchange_header(r->x, "x-forwarded-proto");

    buf_printf(headers, "X-Forwarded-Host: %.*s\r\n", (int)host.len, host.p);
    if (proto.len > 0)
        buf_printf(headers, "X-Forwarded-Proto: %.*s\r\n", (int)proto.len, proto.p);
}

static void write_urls(struct service_request *r, struct str id, struct json_out *o)
{
    static const char *const names[][2] = {
        {"base_url", "/v1"},
        {"anthropic_base_url", ""},
        {"reward_info_url", "/reward_info"},
        {"complete_url", "/complete"},
    };
    struct buf url = {0};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        buf_clear(&url);
        write_front(r, &url);
        buf_printf(&url, "/sessions/%.*s%s", (int)id.len, id.p, names[i][1]);
        json_out_member_str(o, names[i][0], buf_str(&url));
    }
    buf_done(&url);
}

void control_put_created(struct service_request *r, struct str id, uint64_t now_ms,
                         struct json_out *o)
{
    const struct keys *k = r->service->keys;
    char key[KEY_TEXT_MAX];

    json_out_key(o, "session_id");
    json_out_str(o, id);
    write_urls(r, id, o);
    keys_make(k, KEY_AGENT, id, key);
    json_out_key(o, "api_key");
    json_out_cstr(o, key);
    keys_make(k, KEY_RUNNER, id, key);
    json_out_key(o, "runner_key");
    json_out_cstr(o, key);
    json_out_key(o, "worker_index");
    json_out_i64(o, r->service->heritage->index);
    json_out_key(o, "created_at");
    json_out_double(o, (double)now_ms / 1000.0);
}
