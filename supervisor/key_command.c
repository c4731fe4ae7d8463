/* `rollgate key executor NAME`: a key for an executor, made from the gateway's secret. */
#include <stdio.h>
#include <string.h>

#include "common/proc/config.h"
#include "common/proc/keys.h"
#include "supervisor/commands.h"

/* Prints the key. It is not stored, because it can be made again. */
int key_command(int argc, char **argv)
{
    char text[KEY_TEXT_MAX];
    struct keys *keys = NULL;
    struct config *c;
    struct err e;
    int rc = 1;

    c = commands_load_words(argc, argv, COMMANDS_SYNTAX);
    if (!c)
        return 2;
    if (c->args.n != 2 || strcmp(c->args.at[0], "executor") != 0) {
        fprintf(stderr, "usage: rollgate key executor NAME [settings]\n");
        config_free(c);
        return 2;
    }
    if (keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &keys, &e) ||
        keys_make_executor(keys, str_cstr(c->args.at[1]), text, &e)) {
        fprintf(stderr, "rollgate key: %s\n", e.text);
    } else {
        printf("%s\n", text);
        rc = 0;
    }
    keys_free(keys);
    config_free(c);
    return rc;
}
