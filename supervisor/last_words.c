/* Reads the end of a log. Lines of an orderly end may follow the error (last_words.h). */
#include "supervisor/last_words.h"

#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"

enum { END_BYTES = 4096 };

void last_words_read(int fd, struct buf *out)
{
    char text[END_BYTES];
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, sizeof(text), MAX_OF(size - END_BYTES, 0));
    struct str rest = str_of(text, (size_t)MAX_OF(n, 0)), last = {0};
    bool is_error = false;

    while (rest.len) {
        struct str line = str_trim(str_cut(&rest, '\n'));
        bool error = str_find(line, STR("error"), 0) != SIZE_MAX;

        if (line.len && (error || !is_error)) {
            last = line;
            is_error = is_error || error;
        }
    }
    buf_add_str(out, last);
}
