/* Implements `rollgate check`: loads a model as the gateway would, and reports its properties
 * (check_command.h). Then tries random conversations: each prompt that is built step by step must
 * equal the rendering of the whole chat. */

#include "worker/commands/offline_commands.h"

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "worker/text/model/model.h"

enum { TRIALS = 200, TRIALS_MAX = 10000000 };

struct check_args {
    struct model_options model;
    uint64_t context_length, trials, seed;
};

static int usage(void)
{
    (void)fprintf(stderr,
                  "usage: rollgate check [DIR] [--chat-template FILE] [--tool-parser NAME]"
                  " [--reasoning-parser NAME]\n                      "
                  "[--tito-family NAME] [--tool-images auto|inline|user]\n                      "
                  "[--context-length N] [--trials N] [--seed N]\n");
    return 2;
}

/* Reads a flag with a text value. Returns false if there is no such flag. */
static bool read_text_flag(struct check_args *args, const char *flag, const char *value)
{
    struct model_options *o = &args->model;

    const struct {
        const char *flag;
        const char **value;
    } flags[] = {{"--chat-template", &o->chat_template_file},  {"--tool-parser", &o->tool_parser},
                 {"--reasoning-parser", &o->reasoning_parser}, {"--tito-family", &o->tito_family},
                 {"--tool-images", &o->tool_images},           {"--model", &o->dir}};

    for (size_t k = 0; k < ARRAY_LEN(flags); k++) {
        if (strcmp(flag, flags[k].flag) == 0) {
            *flags[k].value = value;
            return true;
        }
    }
    return false;
}

/* Reads a flag with a number. Returns false if there is no such flag, or if the number is out of
 * range. */
static bool read_number_flag(struct check_args *args, const char *flag, const char *value)
{
    const struct {
        const char *flag;
        uint64_t *value;
        uint64_t max;
    } numbers[] = {{"--context-length", &args->context_length, INT32_MAX},
                   {"--trials", &args->trials, TRIALS_MAX},
                   {"--seed", &args->seed, UINT32_MAX}};

    for (size_t k = 0; k < ARRAY_LEN(numbers); k++) {
        if (strcmp(flag, numbers[k].flag) == 0)
            return str_to_u64(str_cstr(value), numbers[k].max, numbers[k].value) == 0;
    }
    return false;
}

/* Reads the arguments. The only one without a flag is the model's folder. */
static bool parse_args(int argc, char **argv, struct check_args *args)
{
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && (read_text_flag(args, argv[i], argv[i + 1]) ||
                             read_number_flag(args, argv[i], argv[i + 1])))
            i++;
        else if (argv[i][0] != '-' && !args->model.dir)
            args->model.dir = argv[i];
        else
            return false;
    }
    args->model.context_length = (uint32_t)args->context_length;
    return true;
}

/* Compares random conversations with the rendering of the whole chat, and prints the counts.
 * Returns false if a prompt would be wrong. */
static bool try_conversations(const struct model *m, const struct check_args *args, struct buf *out)
{
    struct model_trials t;
    struct buf first = {0};

    model_try(m, args->seed, args->trials, &t, &first);
    buf_printf(out, "%-20s %zu random conversations: %zu as the whole chat is rendered", "prompts",
               t.made, t.same);
    if (t.differ)
        buf_printf(out, ", %zu OTHERWISE", t.differ);
    if (t.leaked)
        buf_printf(out, ", %zu refused because stand-ins would leak", t.leaked);
    if (t.failed)
        buf_printf(out, ", %zu rendered anew", t.failed);
    buf_printf(out, ", %zu that the template refuses\n", t.refused);
    buf_add_str(out, buf_str(&first));
    buf_done(&first);
    return t.differ + t.leaked == 0;
}

/* Returns 0 if all prompts are right, 2 for usage. Returns 1 if one is not, if the template refuses
 * every chat, or if the model cannot be loaded. */
int check_command(int argc, char **argv)
{
    struct check_args args = {.trials = TRIALS, .seed = 1};
    struct buf out = {0}, trials = {0};
    struct model *m;
    struct err e;
    bool ok = true, is_usable;

    if (!parse_args(argc, argv, &args))
        return usage();
    if (model_load(&args.model, &m, &e) != 0) {
        (void)fprintf(stderr, "rollgate check: %s\n", e.text);
        return 1;
    }
    if (args.trials > 0)
        ok = try_conversations(m, &args, &trials);
    if (!ok)
        buf_printf(&out,
                   "%-20s NOT usable: some prompts differ from the template's rendering; see "
                   "`prompts` below\n",
                   "result");
    model_report(m, &out);
    buf_add_str(&out, buf_str(&trials));
    buf_done(&trials);
    (void)fwrite(out.p, 1, out.len, stdout);
    buf_done(&out);
    is_usable = !model_info(m)->refusal.p;
    model_free(m);
    return fflush(stdout) == 0 && ok && is_usable ? 0 : 1;
}
