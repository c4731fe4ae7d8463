/* Not a test: the implementation of talk.h. */
#include "talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "testing.h"

uint32_t talk_below(struct talk_random *r, uint32_t n)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (uint32_t)((r->state >> 11) % n);
}

static void words(struct talk_random *r, struct json_out *o)
{
    static const char *const some[] = {"alpha",
                                       "b\"eta",
                                       "gam\nma",
                                       "na\xc3\xafve",
                                       "  ",
                                       "{}",
                                       "\xe4\xbd\xa0\xe5\xa5\xbd",
                                       "1.50",
                                       "\t",
                                       "<b>",
                                       "d'oh",
                                       "\xf0\x9f\x99\x82",
                                       "end",
                                       "\\n",
                                       "</x>",
                                       "Z"};
    struct buf text = {0};

    for (uint32_t n = 1 + talk_below(r, 5); n > 0; n--) {
        buf_puts(&text, some[talk_below(r, ARRAY_LEN(some))]);
        buf_add_c(&text, n > 1 ? ' ' : 'x');
    }
    json_out_str(o, buf_str(&text));
    buf_done(&text);
}

static void simple(struct talk_random *r, struct json_out *o, const char *role)
{
    json_out_obj(o);
    json_out_key(o, "role");
    json_out_cstr(o, role);
    json_out_key(o, "content");
    words(r, o);
    json_out_end_obj(o);
}

static void call(struct talk_random *r, struct json_out *o, const char *id)
{
    static const char *const arguments[] = {"{}", "{\"p\": \"x y\"}",
                                            "{\"n\": 3, \"l\": [1, 2.5]}"};

    json_out_obj(o);
    json_out_key(o, "id");
    json_out_cstr(o, id);
    json_out_key(o, "type");
    json_out_cstr(o, "function");
    json_out_key(o, "function");
    json_out_obj(o);
    json_out_key(o, "name");
    json_out_cstr(o, "ls");
    json_out_key(o, "arguments");
    json_out_cstr(o, arguments[talk_below(r, ARRAY_LEN(arguments))]);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* Writes an answer. Returns the number of its calls, and writes their ids to ids. */
static uint32_t answer(struct talk_random *r, struct json_out *o, const struct talk_options *opt,
                       char (*ids)[16])
{
    uint32_t n = opt->tools && talk_below(r, 2) ? 1 + talk_below(r, 2) : 0;

    json_out_obj(o);
    json_out_key(o, "role");
    json_out_cstr(o, "assistant");
    json_out_key(o, "content");
    if (n && talk_below(r, 2))
        json_out_cstr(o, "");
    else
        words(r, o);
    if (opt->call_thoughts_only || (opt->thoughts && talk_below(r, 2))) {
        json_out_key(o, "reasoning_content");
        json_out_cstr(o, "let me think");
    }
    if (n) {
        json_out_key(o, "tool_calls");
        json_out_arr(o);
        for (uint32_t i = 0; i < n; i++) {
            (void)snprintf(ids[i], sizeof(ids[i]), "call%05u", talk_below(r, 99999));
            call(r, o, ids[i]);
        }
        json_out_end_arr(o);
    }
    json_out_end_obj(o);
    return n;
}

static void result(struct talk_random *r, struct json_out *o, const char *id)
{
    json_out_obj(o);
    json_out_key(o, "role");
    json_out_cstr(o, "tool");
    json_out_key(o, "tool_call_id");
    json_out_cstr(o, id);
    json_out_key(o, "name");
    json_out_cstr(o, "ls");
    json_out_key(o, "content");
    words(r, o);
    json_out_end_obj(o);
}

const struct json *talk_make(struct talk_random *r, struct arena *a, const struct talk_options *o,
                             size_t *covered)
{
    struct buf b = {0};
    struct json_out out = json_out_to(&b);
    size_t answers[16], n_answers = 0, n = 0;
    const struct json *ret = NULL;
    char ids[2][16];
    struct err e;

    json_out_arr(&out);
    if (talk_below(r, 2)) {
        simple(r, &out, "system");
        n++;
    }
    simple(r, &out, "user");
    n++;
    for (uint32_t turns = 1 + talk_below(r, 6); turns > 0; turns--) {
        uint32_t calls = answer(r, &out, o, ids);

        answers[n_answers++] = ++n;
        for (uint32_t i = 0; i < calls; i++, n++)
            result(r, &out, ids[i]);
        if (calls && talk_below(r, 4))
            continue;
        simple(r, &out, o->late_system && !calls && talk_below(r, 4) == 0 ? "system" : "user");
        n++;
    }
    json_out_end_arr(&out);
    *covered = answers[talk_below(r, (uint32_t)n_answers)];
    cr_assert_eq(json_parse(a, arena_str(a, buf_str(&b)), &ret, &e), 0, "%s", e.text);
    cr_assert_eq(ret->n, n);
    buf_done(&b);
    return ret;
}

const struct json *talk_tools(struct arena *a)
{
    const struct json *ret = NULL;

    (void)json_parse(
        a,
        STR("[{\"type\":\"function\",\"function\":{\"name\":\"ls\",\"description\":"
            "\"list files\",\"parameters\":{\"type\":\"object\",\"properties\":{\"p\":"
            "{\"type\":\"string\",\"description\":\"path\"}},\"required\":[\"p\"]}}}]"),
        &ret, NULL);
    return ret;
}

/* --- folders --- */

static void write_file(const char *dir, const char *name, struct str text)
{
    char path[512];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "wb");
    cr_assert_not_null(f);
    (void)fwrite(text.p, 1, text.len, f);
    (void)fclose(f);
}

/* Returns the character for a byte in byte-level vocabularies. */
static uint32_t byte_char(unsigned byte)
{
    uint32_t n = 0;

    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
        return byte;
    for (unsigned b = 0; b < byte; b++)
        n += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    return 256 + n;
}

/* Returns the length of a text like <|name|>, <｜name｜>, [NAME] and </s> at this position of a
 * template. */
static size_t token_at(struct str s, size_t at)
{
    static const struct {
        const char *open, *close;
    } forms[] = {
        {"<|", "|>"}, {"<\xef\xbd\x9c", "\xef\xbd\x9c>"}, {"[", "]"}, {"]~", "b]"}, {"[e~", "["}};

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct str rest = str_sub(s, at, 40);
        size_t end = str_starts(rest, str_cstr(forms[i].open))
                         ? str_find(rest, str_cstr(forms[i].close), strlen(forms[i].open))
                         : SIZE_MAX;
        bool plain = end != SIZE_MAX && end > strlen(forms[i].open);

        for (size_t k = strlen(forms[i].open); plain && k < end; k++)
            plain = forms[i].open[0] != '[' || forms[i].open[1] == 'e' ||
                    (rest.p[k] >= 'A' && rest.p[k] <= 'Z') || rest.p[k] == '_';
        if (plain && !memchr(rest.p, ' ', end) && !memchr(rest.p, '\'', end))
            return end + strlen(forms[i].close);
    }
    return 0;
}

struct token_names {
    struct str at[64];
    size_t n;
};

static void add_token(struct token_names *t, struct str s)
{
    for (size_t i = 0; i < t->n; i++) {
        if (str_eq(t->at[i], s))
            return;
    }
    if (t->n < ARRAY_LEN(t->at) && s.len)
        t->at[t->n++] = s;
}

static void write_tokenizer(const char *dir, const struct token_names *names)
{
    struct buf b = {0};

    buf_puts(&b, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (size_t i = 0; i < names->n; i++) {
        buf_printf(&b, "%s{\"id\":%zu,\"content\":", i ? "," : "", 256 + i);
        json_write_string(&b, names->at[i]);
        buf_puts(&b, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":"
                     "false,\"special\":true}");
    }
    buf_puts(&b, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_"
                 "space\":false,\"trim_offsets\":false,\"use_regex\":false},\"post_processor\":"
                 "null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_"
                 "offsets\":false,\"use_regex\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned i = 0; i < 256; i++) {
        char text[4];
        size_t n = utf8_encode(text, byte_char(i));

        buf_puts(&b, i ? "," : "");
        json_write_string(&b, str_of(text, n));
        buf_printf(&b, ":%u", i);
    }
    buf_puts(&b, "},\"merges\":[]}}");
    write_file(dir, "tokenizer.json", buf_str(&b));
    buf_done(&b);
}

const char *talk_folder(struct arena *a, struct str template_text, const struct json *special)
{
    static const char *const openers[] = {"<|user|>",   "<|observation|>", "<|call|>",
                                          "<|im_end|>", "<|eot_id|>",      "<|end|>"};
    char *dir = arena_cstr(a, STR("/tmp/rollgate-test-XXXXXX"));
    struct token_names names = {0};
    struct buf b = {0}, stops = {0};

    cr_assert_not_null(mkdtemp(dir));
    add_token(&names, json_string(json_get(special, "bos_token")));
    add_token(&names, json_string(json_get(special, "eos_token")));
    for (size_t at = 0; at < template_text.len; at++) {
        size_t n = token_at(template_text, at);

        add_token(&names, str_sub(template_text, at, n));
    }
    write_tokenizer(dir, &names);
    write_file(dir, "chat_template.jinja", template_text);
    if (special)
        json_write(&b, special);
    else
        buf_puts(&b, "{}");
    write_file(dir, "tokenizer_config.json", buf_str(&b));
    for (size_t i = 0; i < names.n; i++) {
        bool stop = str_eq(names.at[i], json_string(json_get(special, "eos_token")));

        for (size_t k = 0; k < ARRAY_LEN(openers); k++)
            stop = stop || str_eq_c(names.at[i], openers[k]);
        if (stop)
            buf_printf(&stops, "%s%zu", stops.len ? "," : "", 256 + i);
    }
    buf_clear(&b);
    buf_printf(&b, "{\"eos_token_id\":[%.*s]}", (int)stops.len, stops.p ? stops.p : "");
    write_file(dir, "generation_config.json", buf_str(&b));
    buf_done(&b);
    buf_done(&stops);
    return dir;
}

void talk_remove(const char *dir)
{
    static const char *const names[] = {"tokenizer.json", "chat_template.jinja",
                                        "tokenizer_config.json", "generation_config.json"};
    char path[512];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}
