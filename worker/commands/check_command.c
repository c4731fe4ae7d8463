#include "worker/commands/check_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "worker/model/model.h"

static int usage(void)
{
    (void)fprintf(stderr, "usage: rollgate check [DIR] [--chat-template FILE] [--tool-parser NAME]"
                          " [--reasoning-parser NAME]\n                      "
                          "[--tito-family NAME] [--context-length N]\n");
    return 2;
}

static bool parse_args(int argc, char **argv, struct model_options *o)
{
    const struct {
        const char *flag;
        const char **value;
    } flags[] = {{"--chat-template", &o->chat_template_file},
                 {"--tool-parser", &o->tool_parser},
                 {"--reasoning-parser", &o->reasoning_parser},
                 {"--tito-family", &o->tito_family},
                 {"--model", &o->dir}};

    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        uint64_t n;

        while (k < ARRAY_LEN(flags) && strcmp(argv[i], flags[k].flag) != 0)
            k++;
        if (k < ARRAY_LEN(flags) && i + 1 < argc) {
            *flags[k].value = argv[++i];
        } else if (strcmp(argv[i], "--context-length") == 0 && i + 1 < argc &&
                   str_to_u64(str_cstr(argv[i + 1]), INT32_MAX, &n) == 0) {
            o->context_length = (uint32_t)n;
            i++;
        } else if (argv[i][0] != '-' && !o->dir) {
            o->dir = argv[i];
        } else {
            return false;
        }
    }
    return true;
}

int check_command(int argc, char **argv)
{
    struct model_options o = {0};
    struct buf out = {0};
    struct model *m;
    struct err e;

    if (!parse_args(argc, argv, &o))
        return usage();
    if (model_load(&o, &m, &e) != 0) {
        (void)fprintf(stderr, "rollgate check: %s\n", e.text);
        return 1;
    }
    model_report(m, &out);
    (void)fwrite(out.p, 1, out.len, stdout);
    buf_done(&out);
    model_free(m);
    return fflush(stdout) == 0 ? 0 : 1;
}
