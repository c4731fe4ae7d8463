/* Reads a tokenizer.json from a file. The text of the built-in tokenizer is made here
 * (tokenizer.h). */
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/tokenizer.h"

enum { FILE_MAX_BYTES = 128 * 1024 * 1024 }; /* largest file; the largest known one has 40 MB */

/* Handles a symbolic link that was checked out as text, so that the file has only a relative path.
 * Reads the file that the path names. */
static int follow_link(const char *path, struct buf *file, struct err *e)
{
    struct str target = str_trim(buf_str(file));
    const char *slash = strrchr(path, '/');
    struct buf real = {0};
    int rc;

    if (target.len == 0 || target.len > 1024 || !str_ends(target, STR(".json")) ||
        memchr(target.p, '{', target.len) || memchr(target.p, '\n', target.len))
        return 0;
    buf_add(&real, path, slash ? (size_t)(slash - path) + 1 : 0);
    buf_add_str(&real, target);
    buf_add_c(&real, '\0');
    buf_clear(file);
    rc = file_read_regular(real.p, FILE_MAX_BYTES, file, e);
    buf_done(&real);
    return rc;
}

/* Loads the file. Errors name it. */
int tokenizer_load(const char *path, struct tokenizer **ret, struct err *e)
{
    struct buf file = {0};
    struct err inner;
    int rc = file_read_regular(path, FILE_MAX_BYTES, &file, e);

    if (rc == 0)
        rc = follow_link(path, &file, e);
    if (rc == 0) {
        rc = tokenizer_parse(buf_str(&file), ret, &inner);
        if (rc < 0)
            err_set(e, inner.kind, "%s: %s", path, inner.text);
    }
    buf_done(&file);
    return rc;
}

/* The tokenizer is made from a small tokenizer.json, so it uses the same code as all others. */
struct tokenizer *tokenizer_builtin(void)
{
    static const char *const specials[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    struct buf json = {0}, piece = {0};
    struct tokenizer *t;
    struct err e;

    buf_puts(&json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                    "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
                    "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;

        buf_clear(&piece);
        byte_level_write(str_of(&byte, 1), &piece);
        buf_puts(&json, i ? "," : "");
        json_write_string(&json, buf_str(&piece));
        buf_printf(&json, ":%d", i);
    }
    buf_puts(&json, "}},\"added_tokens\":[");
    for (size_t i = 0; i < ARRAY_LEN(specials); i++)
        buf_printf(&json,
                   "%s{\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                   "\"rstrip\":false,\"normalized\":false,\"special\":true}",
                   i ? "," : "", specials[i]);
    buf_puts(&json, "]}");
    CHECK(tokenizer_parse(buf_str(&json), &t, &e) == 0);
    buf_done(&json);
    buf_done(&piece);
    return t;
}
