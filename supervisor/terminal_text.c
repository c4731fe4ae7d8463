#include "supervisor/terminal_text.h"

#include <stdbool.h>

/* Reports whether the two bytes after 0xe2 complete a direction mark: U+200E, U+200F, U+202A to
 * U+202E, U+2066 to U+2069. */
static bool is_direction(unsigned char second, unsigned char third)
{
    if (second == 0x80)
        return third == 0x8e || third == 0x8f || (third >= 0xaa && third <= 0xae);
    return second == 0x81 && third >= 0xa6 && third <= 0xa9;
}

/* Returns the length of the control character or direction mark at text.p[at]; 0: it is a different
 * character. C1 controls have two bytes. */
static size_t control_bytes(struct str text, size_t at)
{
    unsigned char c = (unsigned char)text.p[at];

    if (c == 0xe2 && at + 2 < text.len &&
        is_direction((unsigned char)text.p[at + 1], (unsigned char)text.p[at + 2]))
        return 3;
    if (c == 0xc2 && at + 1 < text.len && (unsigned char)text.p[at + 1] < 0xa0)
        return 2;
    return c < ' ' || c == 0x7f;
}

const char *terminal_name(struct str name, char out[TERMINAL_NAME])
{
    size_t n = 0;

    for (size_t i = 0; i < name.len && n < TERMINAL_NAME - 1; i++) {
        size_t control = control_bytes(name, i);

        out[n++] = control > 0 ? '?' : name.p[i];
        i += control > 1 ? control - 1 : 0;
    }
    out[n] = '\0';
    return out;
}

void terminal_write(FILE *out, struct str text, int margin)
{
    for (size_t i = 0; i < text.len; i++) {
        size_t control = control_bytes(text, i);

        if (text.p[i] == '\n')
            (void)fprintf(out, "\n%*s", margin, "");
        else if (control == 0 || text.p[i] == '\t')
            (void)putc(text.p[i], out);
        else
            (void)putc('?', out);
        i += control > 1 ? control - 1 : 0;
    }
}
