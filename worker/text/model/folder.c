/*
 * Files are read whole into the model's arena and stay there, because templates and configurations
 * are slices of them. An absent file is not an error. A file that cannot be read or parsed is an
 * error that names the path. Templates are read in the order of transformers, later ones win:
 *
 *   tokenizer_config.json, chat_template.json, FOLDER/default.jinja, chat_template.jinja
 *
 * FOLDER is chat_templates or, since transformers 4.51, additional_chat_templates. A template file
 * replaces the default and also the one for tools, which FOLDER/tool_use.jinja may set again.
 */
#include "worker/text/model/folder.h"

#include <errno.h>
#include <sys/stat.h>

#include "common/base/buf.h"
#include "common/base/utf8.h"
#include "common/os/file.h"

enum { FILE_MAX = 64 << 20 };

bool folder_is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Reads the file into the arena. *ret is absent if the file does not exist. */
static int read_text_file(struct arena *a, const char *path, struct str *ret, struct err *e)
{
    struct buf file = {0};
    struct err why;
    int rc = file_read_regular(path, FILE_MAX, &file, &why);

    *ret = (struct str){0};
    if (rc == 0 && !utf8_valid(buf_str(&file)))
        rc = err_set(e, ERR_CONFIG, "%s: invalid UTF-8 at byte %zu", path,
                     utf8_valid_len(buf_str(&file)));
    else if (rc == 0)
        *ret = arena_str(a, buf_str(&file));
    else if (why.sys != ENOENT && why.sys != ENOTDIR)
        *e = why;
    else if (folder_is_link(path))
        rc = err_set(e, ERR_IO, "%s is a link to a file that does not exist", path);
    else
        rc = 0;
    buf_done(&file);
    return rc;
}

static int read_json_file(struct arena *a, const char *dir, const char *name,
                          const struct json **ret, struct err *e)
{
    char *path = arena_cstr(a, arena_printf(a, "%s/%s", dir, name));
    struct err cause;
    struct str text;

    *ret = NULL;
    if (read_text_file(a, path, &text, e) != 0)
        return -1;
    if (!text.p)
        return 0;
    if (json_parse(a, text, ret, &cause) != 0)
        return err_set(e, ERR_CONFIG, "%s: %s", path, cause.text);
    return json_is(*ret, JSON_OBJECT) ? 0 : err_set(e, ERR_CONFIG, "%s: not an object", path);
}

/* Reads "chat_template" of a config: one text, or a list of {"name", "template"}. */
static int template_of_config(const struct json *config, const char *file, struct folder *f,
                              struct err *e)
{
    const struct json *t = json_get(config, "chat_template");

    if (!json_is_null(t) && !json_is(t, JSON_STRING) && !json_is(t, JSON_ARRAY))
        return err_set(e, ERR_CONFIG, "%s: chat_template is neither a text nor a list", file);
    if (json_is(t, JSON_STRING)) {
        f->template_default = json_string(t);
        f->template_from = str_cstr(file);
    }
    for (uint32_t i = 0; json_is(t, JSON_ARRAY) && i < t->n; i++) {
        struct str name = json_string(json_get(&t->items[i], "name"));
        struct str text = json_string(json_get(&t->items[i], "template"));

        if (!name.p || !text.p)
            return err_set(e, ERR_CONFIG, "%s: chat_template[%u] has no texts name and template",
                           file, i);
        if (str_eq_c(name, "default") || (!f->template_default.p && t->n == 1)) {
            f->template_default = text;
            f->template_from = str_cstr(file);
        }
        if (str_eq_c(name, "tool_use"))
            f->template_tools = text;
    }
    return 0;
}

static int template_file(struct arena *a, const char *dir, const char *name, struct str *ret,
                         struct err *e)
{
    struct str text;

    if (read_text_file(a, arena_cstr(a, arena_printf(a, "%s/%s", dir, name)), &text, e) != 0)
        return -1;
    if (text.p)
        *ret = text;
    return 0;
}

static int read_templates(struct arena *a, const char *dir, struct folder *f, struct err *e)
{
    const struct json *legacy;
    struct str file = {0};

    if (read_json_file(a, dir, "chat_template.json", &legacy, e) != 0 ||
        template_of_config(f->tokenizer_config, "tokenizer_config.json", f, e) != 0 ||
        template_of_config(legacy, "chat_template.json", f, e) != 0 ||
        template_file(a, dir, "chat_templates/default.jinja", &file, e) != 0 ||
        template_file(a, dir, "additional_chat_templates/default.jinja", &file, e) != 0 ||
        template_file(a, dir, "chat_template.jinja", &file, e) != 0)
        return -1;
    f->template_json = f->template_default;
    if (file.p) {
        f->template_default = file;
        f->template_from = STR("chat_template.jinja");
        f->template_tools = (struct str){0};
    }
    if (template_file(a, dir, "chat_templates/tool_use.jinja", &f->template_tools, e) != 0)
        return -1;
    return template_file(a, dir, "additional_chat_templates/tool_use.jinja", &f->template_tools, e);
}

int folder_read(struct arena *a, const char *dir, const char *template_path, struct folder *ret,
                struct err *e)
{
    *ret = (struct folder){0};
    if (dir &&
        (read_json_file(a, dir, "tokenizer_config.json", &ret->tokenizer_config, e) != 0 ||
         read_json_file(a, dir, "special_tokens_map.json", &ret->special_tokens_map, e) != 0 ||
         read_json_file(a, dir, "generation_config.json", &ret->generation_config, e) != 0 ||
         read_json_file(a, dir, "config.json", &ret->config, e) != 0 ||
         read_json_file(a, dir, "preprocessor_config.json", &ret->preprocessor, e) != 0))
        return -1;
    if (!template_path || !*template_path)
        return dir ? read_templates(a, dir, ret, e) : 0;
    if (read_text_file(a, template_path, &ret->template_default, e) != 0)
        return -1;
    if (!ret->template_default.p)
        return err_set(e, ERR_IO, "cannot read the chat template %s", template_path);
    ret->template_from = str_cstr(template_path);
    return 0;
}
