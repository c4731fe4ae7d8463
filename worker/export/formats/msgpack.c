/* The native export in msgpack: ids as int32, masks as uint8, logprobs as float32 in extension
 * types 1, 2 and 3, so that a reader need not decode single numbers. Only this file uses
 * msgpack-c. */
#include <msgpack.h>
#include <stdio.h>

#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/surrogates.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/store/group.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_view.h"

enum { EXT_IDS = 1, EXT_MASK = 2, EXT_FLOATS = 3 };

static int to_buf(void *data, const char *p, size_t n)
{
    buf_add(data, p, n);
    return 0;
}

/* Halves of characters, which JSON can hold, become U+FFFD: a reader decodes every text as UTF-8,
 * and would lose the whole file. */
static void put_str(msgpack_packer *pk, struct str s)
{
    struct buf whole = {0};

    if (!s.p) {
        msgpack_pack_nil(pk);
        return;
    }
    if (!utf8_valid(s)) {
        surrogates_add_whole(s, &whole);
        s = buf_str(&whole);
    }
    msgpack_pack_str(pk, s.len);
    msgpack_pack_str_body(pk, s.p, s.len);
    buf_done(&whole);
}

static void put_key(msgpack_packer *pk, const char *key)
{
    put_str(pk, str_cstr(key));
}

/* Writes an extension whose data is in the rope. pk writes into the rope's text. */
static void put_ext(struct export *x, msgpack_packer *pk, int8_t type, const void *p, size_t n)
{
    msgpack_pack_ext(pk, n, type);
    rope_add(&x->rope, PIECE_RAW, p, n);
}

static void put_number(msgpack_packer *pk, const struct json *v)
{
    struct str text = json_text(v);
    uint64_t u;
    int64_t i;
    double d = 0;
    bool integral = true;

    for (size_t k = 0; k < text.len; k++)
        integral = integral && !strchr(".eE", text.p[k]);
    if (integral && json_to_i64(v, &i) == 0) {
        msgpack_pack_int64(pk, i);
        return;
    }
    if (str_to_u64(text, UINT64_MAX, &u) == 0) { /* hashes and ids of rows also look like numbers */
        msgpack_pack_uint64(pk, u);
        return;
    }
    (void)json_to_double(v, &d);
    msgpack_pack_double(pk, d);
}

static void put_json(msgpack_packer *pk, const struct json *v)
{
    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
        msgpack_pack_nil(pk);
        break;
    case JSON_BOOL:
        if (json_is_true(v))
            msgpack_pack_true(pk);
        else
            msgpack_pack_false(pk);
        break;
    case JSON_NUMBER:
        put_number(pk, v);
        break;
    case JSON_STRING:
        put_str(pk, json_string(v));
        break;
    case JSON_ARRAY:
        msgpack_pack_array(pk, v->n);
        for (uint32_t i = 0; i < v->n; i++)
            put_json(pk, &v->items[i]);
        break;
    case JSON_OBJECT:
        msgpack_pack_map(pk, v->n);
        for (uint32_t i = 0; i < v->n; i++) {
            put_str(pk, json_string(&v->members[i].key));
            put_json(pk, &v->members[i].value);
        }
        break;
    }
}

/* Parses a stored JSON text. An imported record may have invalid JSON, or a reward nested too deep.
 * Then the export fails, because the missing data would not be noticed. */
static const struct json *read_back(struct export *x, struct arena *a, struct str text)
{
    static const struct json nothing = {.kind = JSON_OBJECT};
    const struct json *v = NULL;
    struct err e = {0};

    if (json_parse(a, text, &v, &e) == 0)
        return v;
    if (x->failed.kind == ERR_NONE)
        (void)err_set(&x->failed, ERR_UNASSEMBLABLE,
                      "the trajectory cannot be packed: what the session holds cannot be read (%s)",
                      e.text);
    return &nothing;
}

/* Parses the rest of a trajectory, which is first written as JSON, so that both formats have the
 * same source. */
static const struct json *parse_members(struct export *x, struct buf *text)
{
    return read_back(x, &x->scratch, arena_str(&x->scratch, buf_str(text)));
}

static void put_members(msgpack_packer *pk, const struct json *object)
{
    for (uint32_t i = 0; i < object->n; i++) {
        put_str(pk, json_string(&object->members[i].key));
        put_json(pk, &object->members[i].value);
    }
}

/* Begins the file. The scalars come first, so that a reader that needs only them finds them before
 * the trajectories. */
static void msgpack_begin(struct export *x, struct buf *out)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    const struct json *group;
    msgpack_packer pk;

    json_out_obj(&o);
    group_put(x->session, &o);
    json_out_end_obj(&o);
    group = parse_members(x, &text);
    msgpack_packer_init(&pk, out, to_buf);
    msgpack_pack_map(&pk, 4 + group->n);
    put_key(&pk, "session_id");
    put_str(&pk, session_view(x->session).id);
    put_key(&pk, "phase");
    put_key(&pk, session_phase_name(x->session));
    put_members(&pk, group);
    put_key(&pk, "trajectories");
    msgpack_pack_array(&pk, export_branches(x));
    buf_done(&text);
}

static void put_versions(struct export *x, msgpack_packer *pk, const struct trajectory *t)
{
    put_key(pk, "response_versions");
    if (t->versions) {
        msgpack_pack_array(pk, t->n);
        rope_add(&x->rope, PIECE_PACK_I64, t->versions, t->n);
    } else if (t->version_texts) {
        msgpack_pack_array(pk, t->n);
        for (uint32_t i = 0; i < t->n; i++)
            put_str(pk, t->version_texts[i].p ? t->version_texts[i] : STR("-1"));
    } else {
        msgpack_pack_nil(pk);
    }
}

static void put_experts(struct export *x, msgpack_packer *pk, const struct trajectory *t)
{
    put_key(pk, "routed_experts");
    if (!t->experts.p) {
        msgpack_pack_nil(pk);
        return;
    }
    msgpack_pack_bin(pk, t->experts.len);
    rope_add(&x->rope, PIECE_RAW, t->experts.p, t->experts.len);
    put_key(pk, "routed_experts_shape");
    msgpack_pack_array(pk, 3);
    msgpack_pack_uint32(pk, t->experts_rows);
    msgpack_pack_uint32(pk, t->experts_layers);
    msgpack_pack_uint32(pk, t->experts_topk);
    put_key(pk, "routed_experts_dtype");
    put_key(pk, t->experts_item == 1 ? "uint8" : t->experts_item == 2 ? "int16" : "int32");
}

/* Writes the arrays that were asked for, and their shapes. */
static void put_arrays(struct export *x, msgpack_packer *pk, const struct trajectory *t)
{
    char name[64];

    for (unsigned i = 0; i < t->n_arrays; i++) {
        const struct trajectory_array *v = &t->arrays[i];
        size_t cells = trajectory_cells(v);

        put_key(pk, v->name);
        put_ext(x, pk, v->floats ? EXT_FLOATS : EXT_IDS, v->cells, cells * 4);
        (void)snprintf(name, sizeof(name), "%s_shape", v->name);
        put_key(pk, name);
        msgpack_pack_array(pk, v->dims);
        for (unsigned k = 0; k < v->dims; k++)
            msgpack_pack_uint64(pk, v->shape[k]);
    }
}

/* Writes an array; NULL: nil. */
static void put_array(struct export *x, msgpack_packer *pk, const char *key, int8_t type,
                      struct str bytes)
{
    put_key(pk, key);
    if (bytes.p)
        put_ext(x, pk, type, bytes.p, bytes.len);
    else
        msgpack_pack_nil(pk);
}

static struct str array_of(const void *p, size_t bytes)
{
    return p ? str_of(p, bytes) : (struct str){0};
}

/* Writes the arrays of tokens; none if the history was captured as text. */
static void put_tokens(struct export *x, msgpack_packer *pk, const struct trajectory *t)
{
    size_t item = sizeof(int32_t);

    put_array(x, pk, "prompt_ids", EXT_IDS, array_of(t->ids, t->n_prompt * item));
    put_array(x, pk, "response_ids", EXT_IDS,
              array_of(t->ids ? t->ids + t->n_prompt : NULL, t->n * item));
    put_array(x, pk, "response_mask", EXT_MASK, array_of(t->mask, t->n));
    put_array(x, pk, "response_logprobs", EXT_FLOATS, array_of(t->logprobs, t->n * sizeof(float)));
}

/* Packs an item, whose JSON is in `text`. */
static void pack_item(struct export *x, const struct buf *text, msgpack_packer *pk)
{
    struct arena a = {0};

    put_json(pk, read_back(x, &a, buf_str(text)));
    arena_done(&a);
}

MAY_PAUSE static void put_messages(struct export *x, msgpack_packer *pk, const struct trajectory *t)
{
    struct buf text = {0};

    put_key(pk, "messages");
    msgpack_pack_array(pk, t->messages->n);
    for (uint32_t i = 0; i < t->messages->n && export_pause(x); i++) {
        struct json_out o = json_out_to(&text);

        buf_clear(&text);
        native_write_message(t, i, &o);
        pack_item(x, &text, pk);
    }
    buf_done(&text);
}

MAY_PAUSE static void put_turns(struct export *x, msgpack_packer *pk, const struct trajectory *t)
{
    struct buf text = {0};

    put_key(pk, "turns");
    msgpack_pack_array(pk, t->n_turns);
    for (uint32_t i = 0; i < t->n_turns && export_pause(x); i++) {
        struct json_out o = json_out_to(&text);

        buf_clear(&text);
        native_write_turn(t, i, &o);
        pack_item(x, &text, pk);
    }
    buf_done(&text);
}

MAY_PAUSE static void msgpack_write(struct export *x, const struct trajectory *t)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    const struct json *brief;
    msgpack_packer pk;

    json_out_obj(&o);
    native_write_brief(x, t, &o);
    json_out_end_obj(&o);
    brief = parse_members(x, &text);
    buf_done(&text);
    msgpack_packer_init(&pk, &x->rope.text, to_buf);
    msgpack_pack_map(&pk, 10 + (x->options.uid.p ? 1 : 0) + (t->experts.p ? 2 : 0) +
                              2 * t->n_arrays + brief->n);
    put_key(&pk, "session_id");
    put_str(&pk, session_view(x->session).id);
    put_key(&pk, "trajectory_index");
    msgpack_pack_uint64(&pk, t->index);
    if (x->options.uid.p) {
        put_key(&pk, "uid");
        put_str(&pk, x->options.uid);
    }
    put_tokens(x, &pk, t);
    put_versions(x, &pk, t);
    put_experts(x, &pk, t);
    put_arrays(x, &pk, t);
    put_members(&pk, brief);
    put_messages(x, &pk, t);
    put_turns(x, &pk, t);
}

/* Packs the table of pictures, with their bytes. */
static void put_media(struct export *x, msgpack_packer *pk, const struct json *table)
{
    msgpack_pack_array(pk, table->n);
    for (uint32_t i = 0; i < table->n; i++) {
        msgpack_pack_map(pk, (size_t)table->items[i].n + 1);
        put_members(pk, &table->items[i]);
        put_key(pk, "data");
        msgpack_pack_bin(pk, media_size(x, i));
        media_put_bytes(x, i);
    }
}

static void put_summary(struct export *x, msgpack_packer *pk, const struct json *summary)
{
    msgpack_pack_map(pk, summary->n);
    for (uint32_t i = 0; i < summary->n; i++) {
        const struct json_member *m = &summary->members[i];

        put_str(pk, json_string(&m->key));
        if (media_inline(x) && str_eq_c(json_string(&m->key), "media"))
            put_media(x, pk, &m->value);
        else
            put_json(pk, &m->value);
    }
}

static void msgpack_end(struct export *x, struct buf *out)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    msgpack_packer pk;

    (void)out;
    native_write_summary(x, &o);
    msgpack_packer_init(&pk, &x->rope.text, to_buf);
    put_key(&pk, "summary");
    put_summary(x, &pk, parse_members(x, &text));
    buf_done(&text);
}

const struct format format_msgpack = {.indexer = true,
                                      .passes = 1,
                                      .text_too = true,
                                      .begin = msgpack_begin,
                                      .write = msgpack_write,
                                      .end = msgpack_end};
