/* Writes members in the order of the protobuf definition, 64-bit numbers as texts
 * (trace_span.h). */
#include "worker/trace/trace_span.h"

#include <inttypes.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"

/* Bits of Span.flags besides W3C's: it is known whether the parent is remote; the parent is
 * remote. */
enum { HAS_IS_REMOTE = 0x100, IS_REMOTE = 0x200 };

enum { NAME_MAX_BYTES = 256 };

struct str span_name(struct str name)
{
    name.len = MIN_OF(name.len, (size_t)NAME_MAX_BYTES);
    name.len = utf8_valid_len(name);
    return name;
}

static void put_hex(struct buf *out, const char *key, const uint8_t *bytes, size_t n)
{
    buf_printf(out, ",\"%s\":\"", key);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%02x", bytes[i]);
    buf_add_c(out, '"');
}

static bool has_parent(const struct span *s)
{
    for (size_t i = 0; i < SPAN_ID_BYTES; i++)
        if (s->parent[i])
            return true;
    return false;
}

void span_open(struct buf *out, const struct span *s)
{
    buf_printf(out, "{\"kind\":%d", (int)s->kind);
    put_hex(out, "traceId", s->at.trace_id, TRACE_ID_BYTES);
    put_hex(out, "spanId", s->at.span_id, SPAN_ID_BYTES);
    if (s->state.len > 0) {
        buf_puts(out, ",\"traceState\":");
        json_write_string(out, s->state);
    }
    if (has_parent(s))
        put_hex(out, "parentSpanId", s->parent, SPAN_ID_BYTES);
    buf_printf(out, ",\"flags\":%d,\"name\":",
               s->at.flags | HAS_IS_REMOTE | (s->remote_parent ? IS_REMOTE : 0));
    json_write_string(out, s->name);
    buf_printf(out,
               ",\"startTimeUnixNano\":\"%" PRIu64 "\",\"endTimeUnixNano\":\"%" PRIu64
               "\",\"attributes\":[",
               s->start_ns, s->end_ns);
}

/* Writes the key of an attribute, after a comma unless it is the first one. */
static void put_key(struct buf *out, const char *key)
{
    if (out->p[out->len - 1] != '[')
        buf_add_c(out, ',');
    buf_printf(out, "{\"key\":\"%s\",\"value\":{", key);
}

void span_text(struct buf *out, const char *key, struct str value)
{
    if (!value.p)
        return;
    put_key(out, key);
    buf_puts(out, "\"stringValue\":");
    json_write_string(out, value);
    buf_puts(out, "}}");
}

void span_number(struct buf *out, const char *key, int64_t value)
{
    put_key(out, key);
    buf_printf(out, "\"intValue\":\"%" PRId64 "\"}}", value);
}

void span_bool(struct buf *out, const char *key, bool value)
{
    put_key(out, key);
    buf_printf(out, "\"boolValue\":%s}}", value ? "true" : "false");
}

void span_texts(struct buf *out, const char *key, const struct str *values, size_t n)
{
    put_key(out, key);
    buf_puts(out, "\"arrayValue\":{\"values\":[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i > 0 ? ",{\"stringValue\":" : "{\"stringValue\":");
        json_write_string(out, values[i]);
        buf_add_c(out, '}');
    }
    buf_puts(out, "]}}}");
}

void span_close(struct buf *out, struct str error)
{
    if (error.len > 0)
        span_text(out, "error.type", error);
    buf_puts(out, error.len > 0 ? "],\"status\":{\"code\":2}}" : "],\"status\":{}}");
}

void span_request_open(struct buf *out, const struct span_source *from)
{
    buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    span_text(out, "service.name", STR("rollgate"));
    span_text(out, "service.version", from->version);
    span_text(out, "service.instance.id", from->instance);
    span_text(out, "host.name", from->host);
    buf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"rollgate\",\"version\":");
    json_write_string(out, from->version);
    buf_puts(out, "},\"spans\":[");
}

void span_request_close(struct buf *out)
{
    buf_puts(out, "]}]}]}");
}
