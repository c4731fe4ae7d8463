#include "supervisor/terminal_text.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

static bool is_written(struct str text, const char *want)
{
    char *got = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&got, &n);
    bool same;

    cr_assert(out);
    terminal_write(out, text, 2);
    (void)fclose(out);
    same = strcmp(got, want) == 0;
    free(got);
    return same;
}

Test(terminal_text, replaces_controls)
{
    cr_assert(is_written(STR("a\x1b[2J\r\x7f\tb\nc\xc2\x9b"
                             "d"),
                         "a?[2J??\tb\n  c?d"));
    cr_assert(is_written(STR("\xe2\x80\xae"), "?"));
    cr_assert(is_written(STR("\xe2\x80\x8e.\xe2\x80\x8f.\xe2\x80\xaa.\xe2\x81\xa6.\xe2\x81\xa9"),
                         "?.?.?.?.?"));
}

Test(terminal_text, leaves_other_characters)
{
    const char *text = "\xe2\x80\x8d \xe2\x80\xa6 \xe2\x81\xaa \xe2\x82\xac \xc3\xbc \xe2\x80";

    cr_assert(is_written(str_cstr(text), text));
    cr_assert(is_written((struct str){0}, ""));
}

Test(terminal_text, cuts_names)
{
    char name[TERMINAL_NAME];

    cr_assert_str_eq(terminal_name(STR("a\xe2\x80\xae"
                                       "b\nc"),
                                   name),
                     "a?b?c");
}
