/* Schemas of requests, as JSON Schema. */
#include "worker/plane/api/openapi_parts.h"

#include "common/codec/input_value.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/request_members.h"
#include "worker/plane/api/inputs.h"

static void write_type(struct json_out *o, const char *type)
{
    json_out_member_cstr(o, "type", type);
}

/* Writes a number with its limits. */
static void write_range(struct json_out *o, const struct input *in)
{
    write_type(o, in->kind == INPUT_KIND_INTEGER ? "integer" : "number");
    json_out_member_double(o, "minimum", in->min);
    json_out_member_double(o, "maximum", in->max);
}

/* Writes the names that a field accepts. */
static void write_choices(struct json_out *o, const char *choices)
{
    struct str left = str_cstr(choices);

    json_out_member_arr(o, "enum");
    while (left.len > 0)
        json_out_str(o, str_trim(str_cut(&left, ',')));
    json_out_end_arr(o);
}

/* Writes the names that SAMPLING may have (values have checks of their own), or that LOCKS may
 * list. */
static void write_sampling(struct json_out *o, bool names_only)
{
    if (names_only) {
        write_type(o, "array");
        json_out_member_obj(o, "items");
        json_out_member_arr(o, "enum");
    } else {
        write_type(o, "object");
        json_out_member_bool(o, "additionalProperties", false);
        json_out_member_obj(o, "properties");
    }
    for (size_t i = 0; sampling_name_at(i); i++) {
        if (names_only) {
            json_out_cstr(o, sampling_name_at(i));
            continue;
        }
        json_out_key(o, sampling_name_at(i));
        sampling_write_schema(str_cstr(sampling_name_at(i)), o);
    }
    if (names_only) {
        json_out_end_arr(o);
    } else {
        json_out_member_raw(o, SAMPLING_ENGINE_EXTRA, STR("{\"type\":[\"object\",\"null\"]}"));
    }
    json_out_end_obj(o);
}

/* Writes a text. The schema can only limit characters, while the check limits bytes. */
static void write_text(struct json_out *o, const struct input *in)
{
    write_type(o, "string");
    json_out_member_i64(o, "minLength", in->min > 0 ? 1 : 0);
    json_out_member_double(o, "maxLength", in->max);
}

/* Returns the schema, as JSON members, for a kind whose schema is the same for every field; NULL
 * for others. */
static const char *fixed_schema(enum input_kind kind)
{
    switch (kind) {
    case INPUT_KIND_BOOL:
        return "\"type\":\"boolean\"";
    case INPUT_KIND_SWITCH:
        return "\"enum\":[true,false,\"on\",\"off\",\"true\",\"false\",\"1\",\"0\",\"\"]";
    case INPUT_KIND_OBJECT:
        return "\"type\":\"object\"";
    case INPUT_KIND_LABELS:
        return "\"type\":\"object\",\"additionalProperties\":{\"type\":[\"string\",\"number\"]}";
    case INPUT_KIND_PREFER:
        return "\"type\":\"object\",\"required\":[\"engine\"],\"additionalProperties\":false,"
               "\"properties\":{\"engine\":{\"type\":\"string\",\"minLength\":1}}";
    case INPUT_KIND_SCORES:
        return "\"type\":\"array\",\"maxItems\":3,\"items\":{\"type\":\"object\",\"required\":["
               "\"engine\"],"
               "\"additionalProperties\":false,\"properties\":{\"engine\":{\"type\":\"string\","
               "\"minLength\":1},"
               "\"top_k\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":128},"
               "\"what\":{\"type\":\"string\",\"enum\":[\"teacher\",\"reference\",\"self\"]}}}";
    case INPUT_KIND_PICTURES:
        return "\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"sha256\","
               "\"data\"],"
               "\"additionalProperties\":false,\"properties\":{\"sha256\":{\"type\":\"string\","
               "\"pattern\":\"^[0-9a-f]{64}$\"},\"data\":{\"type\":\"string\"}}}";
    case INPUT_KIND_URLS:
        return "\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"url\",\"sha256\"]"
               ","
               "\"additionalProperties\":false,\"properties\":{\"url\":{\"type\":\"string\","
               "\"pattern\":\"^[0-9a-f]{64}$\"},\"sha256\":{\"type\":\"string\","
               "\"pattern\":\"^[0-9a-f]{64}$\"}}}";
    case INPUT_KIND_REPORTS:
        return "\"type\":\"array\",\"minItems\":1,\"maxItems\":10000,\"items\":{\"type\":"
               "\"object\","
               "\"required\":[\"response_id\",\"ids\",\"logprobs\"],\"additionalProperties\":false,"
               "\"properties\":{\"response_id\":{\"type\":\"string\"},\"ids\":{\"type\":\"array\","
               "\"items\":{\"type\":\"integer\"}},\"logprobs\":{\"type\":\"array\",\"items\":{"
               "\"type\":[\"number\",\"null\"]}}}}";
    case INPUT_KIND_WEIGHTS:
        return "\"anyOf\":[{\"type\":\"integer\",\"minimum\":0},"
               "{\"type\":\"string\",\"minLength\":1,\"maxLength\":256},{\"type\":\"null\"}]";
    case INPUT_KIND_TEXTS:
        return "\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1}";
    case INPUT_KIND_FILTER:
        return "\"type\":\"string\",\"minLength\":1";
    default:
        return NULL;
    }
}

/* The schema depends on the field's kind. */
void openapi_input(struct json_out *o, const struct input *in)
{
    const char *fixed = fixed_schema(in->kind);
    struct buf whole = {0};

    if (fixed) {
        buf_printf(&whole, "{%s}", fixed);
        json_out_raw(o, buf_str(&whole));
        buf_done(&whole);
        return;
    }
    if (in->kind == INPUT_KIND_PARAMETER) {
        sampling_write_schema(str_cstr(in->name), o);
        return;
    }
    json_out_obj(o);
    if (in->kind == INPUT_KIND_INTEGER || in->kind == INPUT_KIND_NUMBER) {
        write_range(o, in);
    } else if (in->kind == INPUT_KIND_NAME) {
        write_type(o, "string");
        write_choices(o, in->choices);
    } else if (in->kind == INPUT_KIND_TEXT) {
        write_text(o, in);
    } else {
        write_sampling(o, in->kind == INPUT_KIND_LOCKS);
    }
    json_out_end_obj(o);
}

/* --- requests of the data plane --- */

/* Writes the members of an object of which the dialect reads some: those of the rows
 * "object.NAME". */
static void write_inner(struct json_out *o, const struct dialect *d, struct str object)
{
    const char *row;

    json_out_obj(o);
    write_type(o, "object");
    json_out_member_obj(o, "properties");
    for (size_t i = 0; (row = request_member_at(d, i)); i++) {
        struct str name = str_cstr(row);

        if (!str_starts(name, object) || name.len <= object.len || name.p[object.len] != '.')
            continue;
        json_out_key_str(o, str_sub(name, object.len + 1, SIZE_MAX));
        json_out_bool(o, true);
    }
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* Reports whether the row is the first of its object, which is written there. */
static bool is_first_of_object(const struct dialect *d, size_t i, struct str object)
{
    const char *row;

    for (size_t k = 0; k < i && (row = request_member_at(d, k)); k++) {
        if (str_starts(str_cstr(row), object) && row[object.len] == '.')
            return false;
    }
    return true;
}

/* Members that the dialect does not read are accepted, so the object stays open. */
void openapi_dialect(struct json_out *o, const struct dialect *d)
{
    const char *row;

    json_out_member_cstr(o, "description",
                         "More members are accepted, without effect (dropped_fields)");
    json_out_member_obj(o, "properties");
    for (size_t i = 0; (row = request_member_at(d, i)); i++) {
        size_t dot = str_find(str_cstr(row), STR("."), 0);
        struct str name = str_sub(str_cstr(row), 0, dot);

        if (dot != SIZE_MAX && !is_first_of_object(d, i, name))
            continue;
        json_out_key_str(o, name);
        if (dot != SIZE_MAX)
            write_inner(o, d, name);
        else if (sampling_known(name))
            sampling_write_schema(name, o);
        else
            json_out_bool(o, true);
    }
    json_out_end_obj(o);
}

void openapi_names(struct json_out *o, const char *names)
{
    struct str left = str_cstr(names);

    json_out_member_obj(o, "properties");
    while (left.len > 0) {
        json_out_key_str(o, str_trim(str_cut(&left, ',')));
        json_out_bool(o, true);
    }
    json_out_end_obj(o);
    json_out_member_bool(o, "additionalProperties", false);
}
