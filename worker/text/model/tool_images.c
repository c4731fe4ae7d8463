/*
 * A run of tool messages is followed by one user message that shows the run's pictures, those of
 * each result after a line that names its call. If a user message follows the run, the pictures are
 * added to it: its own content comes last, so that roles alternate as before.
 *
 *   tool c1 (text, A)   tool c2 (B)   user "go on"
 *   ->
 *   tool c1 (text)      tool c2 ("The image ...")      user (line c1, A, line c2, B, "go on")
 *
 * A suffix is rendered from a short chat (standin.h). So a line may only contain what is in that
 * chat, too: the names of the calls of the nearest assistant message before the run, and the
 * results themselves.
 */
#include "worker/text/model/tool_images.h"

#include "common/codec/json_build.h"
#include "worker/text/model/pictures.h"
#include "worker/text/model/standin.h"
#include "worker/text/request/images.h"

static const char alone[] = "The image is in the next message.";

struct placing {
    struct arena *a;
    const struct json *caller; /* nearest assistant message before the run; NULL: none */
    struct json shown;         /* parts of the user message that must follow; empty: none must */
    struct json out;
};

static bool is_role(const struct json *msg, const char *role)
{
    return str_eq_c(json_string(json_get(msg, "role")), role);
}

static bool is_shown_apart(const struct json *msg)
{
    const struct json *content = json_get(msg, "content");

    for (uint32_t i = 0; json_is(content, JSON_ARRAY) && i < content->n; i++)
        if (image_part_is(&content->items[i]))
            return is_role(msg, "tool");
    return false;
}

static void show_text(struct placing *p, struct str text)
{
    struct json part = json_empty(JSON_OBJECT);

    json_put(p->a, &part, "type", json_make_string(STR("text")));
    json_put(p->a, &part, "text", json_make_string(text));
    json_push(p->a, &p->shown, part);
}

/* Returns the name of the function that a call names. Absent if the assistant made no such call, or
 * several. */
static struct str called_name(const struct json *caller, struct str id)
{
    const struct json *calls = json_get(caller, "tool_calls");

    for (size_t i = 0; id.len && json_at(calls, i); i++)
        if (str_eq(json_string(json_get(json_at(calls, i), "id")), id))
            return json_string(json_get(json_get(json_at(calls, i), "function"), "name"));
    return (struct str){0};
}

/* Writes the line above a result's pictures. */
static void show_line(struct placing *p, const struct json *msg)
{
    struct str id = json_string(json_get(msg, "tool_call_id"));
    struct str name = called_name(p->caller, id);

    if (!name.len)
        name = json_string(json_get(msg, "name"));
    show_text(p,
              arena_printf(p->a, "%sImage output of %s%.*s%s%.*s:\n", p->shown.n ? "\n" : "",
                           name.len ? "the tool " : "a tool", (int)name.len, name.len ? name.p : "",
                           id.len ? ", call " : "", (int)id.len, id.len ? id.p : ""));
}

/* Appends the result with its texts. A line end replaces a picture between two texts. */
static void append_result(struct placing *p, const struct json *msg)
{
    const struct json *content = json_get(msg, "content");
    struct buf text = {0};
    bool gap = false;

    show_line(p, msg);
    for (uint32_t i = 0; i < content->n; i++) {
        struct str t = json_string(json_get(&content->items[i], "text"));

        if (image_part_is(&content->items[i])) {
            json_push(p->a, &p->shown, content->items[i]);
            gap = text.len > 0;
        } else if (t.len) {
            buf_puts(&text, gap ? "\n" : "");
            buf_add_str(&text, t);
            gap = false;
        }
    }
    if (text.len == 0)
        buf_puts(&text, alone);
    json_push(p->a, &p->out,
              copy_with(p->a, msg, "content", json_make_string(arena_str(p->a, buf_str(&text)))));
    buf_done(&text);
}

/* Shows the run's pictures after the run: at the start of the user's message, or in a message of
 * its own. */
static void show_run(struct placing *p, const struct json *user)
{
    const struct json *own = json_get(user, "content");
    struct json msg = json_empty(JSON_OBJECT);

    if (json_is(own, JSON_STRING) && own->n > 0) {
        show_text(p, STR("\n"));
        show_text(p, json_string(own));
    } else if (json_is(own, JSON_ARRAY) && own->n > 0) {
        show_text(p, STR("\n"));
        for (uint32_t i = 0; i < own->n; i++)
            json_push(p->a, &p->shown, own->items[i]);
    }
    if (user) {
        msg = copy_with(p->a, user, "content", p->shown);
    } else {
        json_put(p->a, &msg, "role", json_make_string(STR("user")));
        json_put(p->a, &msg, "content", p->shown);
    }
    json_push(p->a, &p->out, msg);
    p->shown = json_empty(JSON_ARRAY);
}

static void append_message(struct placing *p, const struct json *msg)
{
    if (is_shown_apart(msg)) {
        append_result(p, msg);
        return;
    }
    if (p->shown.n && !is_role(msg, "tool")) {
        bool user = is_role(msg, "user");

        show_run(p, user ? msg : NULL);
        if (user)
            return;
    }
    if (is_role(msg, "assistant"))
        p->caller = msg;
    json_push(p->a, &p->out, *msg);
}

const struct json *tool_images_move(const struct model *m, struct arena *a,
                                    const struct json *messages, uint32_t *n)
{
    struct placing p = {.a = a, .shown = json_empty(JSON_ARRAY), .out = json_empty(JSON_ARRAY)};
    uint32_t i = 0;

    if (!m->tool_images_apart)
        return messages;
    while (i < *n && !is_shown_apart(&messages[i]))
        i++;
    if (i == *n)
        return messages;
    for (i = 0; i < *n; i++)
        append_message(&p, &messages[i]);
    if (p.shown.n)
        show_run(&p, NULL);
    *n = p.out.n;
    return p.out.items;
}

/* --- the form that the template shows --- */

enum { FORM_INLINE, FORM_USER, FORMS };

static const char *const forms[FORMS] = {"inline", "user"};

/* Makes a call, and its result with two pictures and a text. Every template accepts the call's
 * id. */
static uint32_t make_sample(struct arena *a, struct json *at)
{
    static const char text[] =
        "[{\"role\":\"user\",\"content\":\"x\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"rgcall001\","
        "\"type\":\"function\",\"function\":{\"name\":\"rg_call\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"rgcall001\",\"name\":\"rg_call\",\"content\":"
        "[{\"type\":\"image\",\"media\":\"x\"},{\"type\":\"text\",\"text\":\"RGPART\"},"
        "{\"type\":\"image\",\"media\":\"x\"}]}]";
    const struct json *parsed = NULL;

    if (json_parse(a, str_of(text, sizeof(text) - 1), &parsed, NULL) != 0)
        return 0;
    for (uint32_t i = 0; i < parsed->n; i++)
        at[i] = parsed->items[i];
    return parsed->n;
}

/* Reports whether the template shows the pictures and the text, both before the generation prompt
 * and before an answer and a question. */
static bool form_shows(struct model *m, struct model_scratch *s, int form)
{
    struct arena *a = &s->arena;
    struct json msgs[6], tools;
    struct rendering r = {.messages = msgs, .tools = &tools};
    bool shows = true;

    arena_reset(a);
    m->tool_images_apart = form == FORM_USER;
    tools = standin_tools(a, "rg_call");
    if (m->boundaries.needs_system)
        msgs[r.n++] = make_text(a, "role", "system", "content", "x");
    r.n += make_sample(a, msgs + r.n);
    for (size_t i = 0; i < 2 && shows; i++) {
        r.generation_prompt = i == 0;
        if (i == 1) {
            msgs[r.n++] = make_text(a, "role", "assistant", "content", "x");
            msgs[r.n++] = make_text(a, "role", "user", "content", "x");
        }
        buf_clear(&s->a);
        shows = model_text(m, a, &r, &s->a, NULL) == 0 && pictures_shown(m, buf_str(&s->a)) == 2 &&
                str_find(buf_str(&s->a), STR("RGPART"), 0) != SIZE_MAX;
    }
    return shows;
}

static void add_note(struct model *m, bool told)
{
    static const char *const says[FORMS] = {
        "images: a tool's picture stays in the tool's message (--tool-images inline",
        "images: a tool's picture goes into a user's message behind (--tool-images user"};

    if (!m->info.tool_images)
        buf_puts(&m->notes, "images: results of tools can have none: the template shows none in a "
                            "tool's message, nor in a user's behind\n");
    else
        buf_printf(&m->notes, "%s%s)\n", says[m->tool_images_apart], told ? ", as told" : "");
}

/* Returns the index in `forms`; -1: no form has the name. */
static int form_named(const char *name)
{
    int form = 0;

    while (form < FORMS && !str_eq_c(str_cstr(name), forms[form]))
        form++;
    return form < FORMS ? form : -1;
}

int tool_images_choose(struct model *m, struct model_scratch *s, const char *told, struct err *e)
{
    static const char *const lacks[FORMS] = {
        "the chat template shows no image in a tool's message",
        "the chat template shows no user's message with images behind a tool's"};
    int form, best = FORMS;
    bool shows[FORMS];

    if (told && str_eq_c(str_cstr(told), "auto"))
        told = NULL;
    form = told ? form_named(told) : -1;
    if (told && form < 0)
        return err_set(e, ERR_CONFIG, "unknown --tool-images %.64s; known: auto, inline, user",
                       told);
    if (!m->info.vision)
        return told ? err_set(e, ERR_CONFIG, "--tool-images %s: this model takes no images", told)
                    : 0;
    for (int i = FORMS; i-- > 0;) {
        shows[i] = form_shows(m, s, i);
        best = shows[i] ? i : best;
    }
    if (told && !shows[form])
        return err_set(e, ERR_CONFIG, "--tool-images %s: %s", told, lacks[form]);
    m->info.tool_images = told ? forms[form] : best < FORMS ? forms[best] : NULL;
    m->tool_images_apart = (told ? form : best) == FORM_USER;
    m->tool_images_unlike = told && form != best;
    add_note(m, told != NULL);
    return 0;
}
