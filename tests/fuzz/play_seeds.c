/* The main of a fuzzer that is built without libFuzzer: `fuzz_NAME [-OPTION...] [FOLDER...]`. Each
 * file of a folder is one input, after the empty one. Options are only for LLVMFuzzerInitialize. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/os/file.h"

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEED_MAX = 64 << 20 };

/* A block of the input's own size, so that ASan sees a read past its end. */
static void play_input(const void *p, size_t n)
{
    uint8_t *input = malloc(n > 0 ? n : 1);

    CHECK(input);
    if (n > 0)
        memcpy(input, p, n);
    (void)LLVMFuzzerTestOneInput(input, n);
    free(input);
}

/* Returns the number of inputs. */
static size_t play_folder(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    size_t n = 0;

    CHECK(d);
    while ((entry = readdir(d))) {
        struct buf bytes = {0};
        struct err e = {0};
        char path[4096];

        if (entry->d_name[0] == '.')
            continue;
        CHECK((size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < sizeof(path));
        CHECK(file_read(path, SEED_MAX, &bytes, &e) == 0);
        play_input(bytes.p, bytes.len);
        buf_done(&bytes);
        n++;
    }
    (void)closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    size_t n = 0;

    if (LLVMFuzzerInitialize)
        (void)LLVMFuzzerInitialize(&argc, &argv);
    play_input("", 0);
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            n += play_folder(argv[i]);
    printf("number_of_executed_units: %zu\n", n + 1);
    return 0;
}
