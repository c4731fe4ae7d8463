/* Converts chats from the dialects' form to the form that a template expects. */
#include "worker/text/model/model_internal.h"

#include "worker/text/model/pictures.h"
#include "worker/text/model/tool_images.h"

struct json make_object(struct arena *a, uint32_t n)
{
    struct json o = {.kind = JSON_OBJECT};

    o.members = arena_alloc(a, n * sizeof(*o.members));
    return o;
}

void object_put(struct json *object, const char *key, struct json value)
{
    object->members[object->n].key = json_make_string(str_cstr(key));
    object->members[object->n++].value = value;
}

struct json make_text(struct arena *a, const char *key1, const char *value1, const char *key2,
                      const char *value2)
{
    struct json o = make_object(a, 2);

    object_put(&o, key1, json_make_string(str_cstr(value1)));
    object_put(&o, key2, json_make_string(str_cstr(value2)));
    return o;
}

struct json copy_with(struct arena *a, const struct json *from, const char *key, struct json value)
{
    struct json o = make_object(a, from->n + 1);
    bool found = false;

    for (uint32_t i = 0; i < from->n; i++) {
        o.members[o.n] = from->members[i];
        if (str_eq_c(json_text(&from->members[i].key), key)) {
            o.members[o.n].value = value;
            found = true;
        }
        o.n++;
    }
    if (!found)
        object_put(&o, key, value);
    return o;
}

/* Reads `arguments` of one call: text that is a JSON object becomes an object, absent arguments
 * become {}. */
static bool call_arguments(struct arena *a, const struct json *arguments, struct json *ret)
{
    const struct json *parsed;

    if (json_is(arguments, JSON_STRING) && arguments->n > 0) {
        if (json_parse_replacing(a, json_string(arguments), &parsed, NULL) != 0 ||
            parsed->kind != JSON_OBJECT)
            return false;
        *ret = *parsed;
        return true;
    }
    *ret = make_object(a, 0);
    return json_is_null(arguments) || json_is(arguments, JSON_STRING);
}

static struct json normalise_call(struct arena *a, const struct json *call)
{
    const struct json *function = json_get(call, "function");
    struct json arguments;

    if (!json_is(function, JSON_OBJECT) ||
        !call_arguments(a, json_get(function, "arguments"), &arguments))
        return *call;
    return copy_with(a, call, "function", copy_with(a, function, "arguments", arguments));
}

static struct json normalise_calls(struct arena *a, const struct json *calls)
{
    struct json list = {.kind = JSON_ARRAY, .n = calls->n};

    list.items = arena_alloc(a, calls->n * sizeof(*list.items));
    for (uint32_t i = 0; i < calls->n; i++)
        list.items[i] = normalise_call(a, &calls->items[i]);
    return list;
}

/* Joins the texts of a list of text parts. Returns false if the list has other parts. */
static bool join_parts(struct arena *a, const struct json *parts, struct json *ret)
{
    struct buf text = {0};
    bool ok = true;

    for (uint32_t i = 0; i < parts->n && ok; i++) {
        struct str t = json_string(json_get(&parts->items[i], "text"));

        ok = t.p != NULL;
        if (ok)
            buf_add_str(&text, t);
    }
    *ret = json_make_string(arena_str(a, buf_str(&text)));
    buf_done(&text);
    return ok;
}

static bool wraps_role(const struct model *m, struct str role)
{
    size_t i = str_index(role, boundary_roles, ARRAY_LEN(boundary_roles));

    return i < ARRAY_LEN(boundary_roles) && m->boundaries.wraps[i];
}

/* Makes a list with the text as its one part. */
static struct json as_list(struct arena *a, struct json text)
{
    struct json list = {.kind = JSON_ARRAY, .n = 1}, part = make_object(a, 2);

    object_put(&part, "type", json_make_string(STR("text")));
    object_put(&part, "text", text);
    list.items = arena_alloc(a, sizeof(*list.items));
    list.items[0] = part;
    return list;
}

/* Converts a message from chat.h's form to the engines' form. `arguments` texts that are JSON
 * objects become objects, and null content becomes "". Lists of text parts are joined if the
 * template does not read lists; texts become lists if it reads nothing else. developer becomes
 * system if the template has no such role. Borrows from msg; new values are in the arena. */
static struct json normalise_message(const struct model *m, struct arena *a, const struct json *msg)
{
    const struct json *content = json_get(msg, "content");
    const struct json *calls = json_get(msg, "tool_calls");
    struct json ret = *msg, text;

    if (msg->kind != JSON_OBJECT)
        return ret;
    if (!m->boundaries.developer && str_eq_c(json_string(json_get(msg, "role")), "developer"))
        ret = copy_with(a, &ret, "role", json_make_string(STR("system")));
    if (json_is(calls, JSON_ARRAY) && calls->n)
        ret = copy_with(a, &ret, "tool_calls", normalise_calls(a, calls));
    if (json_is_null(content) && str_eq_c(json_string(json_get(msg, "role")), "assistant"))
        ret = copy_with(a, &ret, "content", json_make_string(STR("")));
    else if (json_is(content, JSON_ARRAY) && !m->info.content_lists &&
             join_parts(a, content, &text))
        ret = copy_with(a, &ret, "content", text);
    else if (json_is(content, JSON_ARRAY) && m->info.vision)
        ret = copy_with(a, &ret, "content", pictures_bare(a, content));
    content = json_get(&ret, "content");
    if (json_is(content, JSON_STRING) && wraps_role(m, json_string(json_get(&ret, "role"))))
        ret = copy_with(a, &ret, "content", as_list(a, *content));
    return pictures_guard(m, a, &ret);
}

/* --- the template's context --- */

bool model_sets_variable(struct str key)
{
    static const char *const names[] = {"messages", "tools", "documents", "add_generation_prompt"};

    return str_is_one_of(key, names, ARRAY_LEN(names));
}

/* Adds the pinned variable, unless the caller sets it. */
static int put_pin(const struct model *m, const struct json *kwargs, struct json *context,
                   struct err *e)
{
    const struct json *given = m->pin ? json_get(kwargs, m->pin) : NULL;

    if (!m->pin)
        return 0;
    if (given && m->family_forced && m->pin == m->family->pin &&
        (given->kind != JSON_BOOL || json_is_true(given) != m->pin_value))
        return err_field(e, "chat_template_kwargs", "family %s needs %s=%s", m->family->name,
                         m->pin, m->pin_value ? "true" : "false");
    if (!given)
        object_put(context, m->pin, json_make_bool(m->pin_value));
    return 0;
}

static int build_context(const struct model *m, struct arena *a, const struct rendering *in,
                         struct json *ret, struct err *e)
{
    uint32_t n_kwargs = json_is(in->kwargs, JSON_OBJECT) ? in->kwargs->n : 0;
    struct json messages = {.kind = JSON_ARRAY, .n = in->n};
    const struct json *shown = tool_images_move(m, a, in->messages, &messages.n);
    struct json none = {.kind = JSON_NULL};
    bool tools = json_is(in->tools, JSON_ARRAY) && in->tools->n > 0;

    messages.items = arena_alloc(a, messages.n * sizeof(*messages.items));
    for (uint32_t i = 0; i < messages.n; i++)
        messages.items[i] = normalise_message(m, a, &shown[i]);
    *ret = make_object(a, 5 + m->special.n + n_kwargs);
    object_put(ret, "messages", messages);
    object_put(ret, "tools", tools ? pictures_guard(m, a, in->tools) : none);
    object_put(ret, "documents", none);
    object_put(ret, "add_generation_prompt", json_make_bool(in->generation_prompt));
    if (put_pin(m, in->kwargs, ret, e) != 0)
        return -1;
    for (uint32_t i = 0; i < n_kwargs; i++) {
        if (!model_sets_variable(json_text(&in->kwargs->members[i].key)))
            ret->members[ret->n++] = (struct json_member){
                in->kwargs->members[i].key, pictures_guard(m, a, &in->kwargs->members[i].value)};
    }
    for (uint32_t i = 0; i < m->special.n; i++) {
        if (!json_get_str(in->kwargs, json_text(&m->special.members[i].key)))
            ret->members[ret->n++] = m->special.members[i];
    }
    return 0;
}

/* Steps for one chat of a few messages. Real templates need some thousand. */
enum { TRIAL_STEPS = 1000 * 1000 };

/* Steps that any text may take on the loop, some milliseconds, and for each byte of it. Real
 * templates need less than ten a byte. */
enum { SHORT_STEPS = 256 << 10, STEPS_A_BYTE = 32 };

/* Records a rendering that exceeded its budget, after which loading renders nothing more. */
static void judge_trial(struct model_trial *trial, const struct template_error *error,
                        const struct err *cause)
{
    if (error->kind &&
        (strcmp(error->kind, "BudgetError") == 0 || strcmp(error->kind, "MemoryError") == 0)) {
        trial->failed = true;
        trial->cause = *cause;
    }
}

int model_text(const struct model *m, struct arena *a, const struct rendering *in, struct buf *out,
               struct err *e)
{
    bool tools = json_is(in->tools, JSON_ARRAY) && in->tools->n > 0;
    const struct template *t = tools && m->template_tools ? m->template_tools : m->template_default;
    struct template_error error = {0};
    struct template_options options = {0};
    time_t seconds = in->seconds ? in->seconds : time(NULL);
    size_t before = out->len;
    struct json context;
    uint64_t steps;
    struct err ignored;
    struct tm now;
    int rc;

    if (!e)
        e = &ignored;
    if (build_context(m, a, in, &context, e) != 0)
        return -1;
    options.now = localtime_r(&seconds, &now);
    if (m->trial && m->trial->failed) {
        *e = m->trial->cause;
        return -1;
    }
    if (m->trial) {
        options.max_steps = TRIAL_STEPS;
        options.error = &error;
    }
    options.ret_steps = &steps;
    rc = template_render(t, a, &context, &options, out, e);
    if (steps > SHORT_STEPS && steps / STEPS_A_BYTE > out->len - before)
        atomic_store_explicit(&m->learned->slow, true, memory_order_relaxed);
    if (rc && m->trial)
        judge_trial(m->trial, &error, e);
    return rc;
}
