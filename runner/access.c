/*
 * Reads the first line of the key file, without the blanks around it. A line that has a blank
 * inside is refused: it is no key, and would break the Authorization header that it goes into.
 * Further lines are not looked at.
 */
#include "runner/access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/proc/keys.h"

char *access_key(const char *path, struct buf *mistakes)
{
    char line[KEY_TEXT_MAX + 64] = "";
    FILE *f = fopen(path, "re");
    struct str key;

    if (!f) {
        buf_printf(mistakes, "--key-file: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    if (!fgets(line, sizeof(line), f))
        line[0] = '\0';
    (void)fclose(f);
    key = str_trim(str_cstr(line));
    if (key.len == 0 || memchr(key.p, ' ', key.len)) {
        buf_printf(mistakes, "--key-file: %s: its first line holds no key\n", path);
        return NULL;
    }
    return mem_strndup(key.p, key.len);
}
