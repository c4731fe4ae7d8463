#include "supervisor/terminal_text.h"

#include <stdbool.h>
#include <stdio.h>

/* The bytes of the control character at text.p[at]; 0: it is none. C1 controls have two bytes. */
static size_t control_bytes(struct str text, size_t at)
{
    unsigned char c = (unsigned char)text.p[at];

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
        i += control == 2;
    }
    out[n] = '\0';
    return out;
}

void terminal_print(struct str text, int margin)
{
    for (size_t i = 0; i < text.len; i++) {
        size_t control = control_bytes(text, i);

        if (text.p[i] == '\n')
            printf("\n%*s", margin, "");
        else if (control == 0 || text.p[i] == '\t')
            (void)putchar(text.p[i]);
        else
            (void)putchar('?');
        i += control == 2;
    }
}
