/* The file of weight versions, and errors of a damaged one. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"
#include "worker/engine/pool/weights_file.h"

enum { TELLERS = 8 };

struct folder {
    char path[32], file[64], lock[64];
};

static struct folder folder_make(void)
{
    struct folder f = {.path = "/tmp/rg-weights-XXXXXX"};

    cr_assert_not_null(mkdtemp(f.path));
    (void)snprintf(f.file, sizeof(f.file), "%s/weights.json", f.path);
    (void)snprintf(f.lock, sizeof(f.lock), "%s/weights.lock", f.path);
    return f;
}

/* Removes the folder, which may have only these two files. */
static void folder_remove(const struct folder *f)
{
    (void)unlink(f->file);
    (void)unlink(f->lock);
    cr_expect_eq(rmdir(f->path), 0);
}

TEST(weights_file, what_is_told_is_kept)
{
    struct folder f = folder_make();
    struct weights_told w;
    struct err e = {0};

    cr_assert_eq(weights_stamp(f.path), 0);
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect(w.version.len == 0 && w.loras.n == 0 && e.kind == ERR_NONE);
    weights_told_done(&w);
    cr_assert_eq(weights_tell(f.path, (struct str){0}, STR("step-7"), true, &e), 0, "%s", e.text);
    cr_assert_eq(weights_tell(f.path, STR("math \"x\""), STR("3"), false, &e), 0, "%s", e.text);
    cr_assert_eq(weights_tell(f.path, STR("code"), STR("4"), false, &e), 0, "%s", e.text);
    cr_assert_eq(weights_tell(f.path, STR("code"), (struct str){0}, false, &e), 0, "%s", e.text);
    cr_expect_neq(weights_stamp(f.path), 0);
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect(str_eq_c(buf_str(&w.version), "step-7") && w.loras.n == 1);
    cr_expect(str_eq_c(lora_version(&w.loras, STR("math \"x\"")), "3"));
    weights_told_done(&w);
    cr_assert_eq(weights_tell(f.path, (struct str){0}, (struct str){0}, false, &e), 0);
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect(w.version.len == 0 && w.loras.n == 1);
    weights_told_done(&w);
    folder_remove(&f);
}

TEST(weights_file, an_order_of_the_fleet_replaces_the_adapters_alone)
{
    struct folder f = folder_make();
    struct lora_book book = {0};
    struct weights_told w;
    struct err e = {0};

    cr_assert_eq(weights_tell(f.path, STR("old"), STR("3"), false, &e), 0, "%s", e.text);
    cr_assert_eq(weights_tell(f.path, (struct str){0}, STR("step-8"), false, &e), 0, "%s", e.text);
    cr_assert_eq(lora_set(&book, STR("new"), STR("4")), 0);
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect(str_eq_c(buf_str(&w.version), "step-8") && w.loras.n == 1);
    weights_told_done(&w);
    cr_assert_eq(weights_replace_loras(f.path, &book, false, &e), 0, "%s", e.text);
    lora_done(&book);
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect(str_eq_c(buf_str(&w.version), "step-8") && w.loras.n == 1);
    cr_expect(str_eq_c(lora_version(&w.loras, STR("new")), "4"));
    weights_told_done(&w);
    folder_remove(&f);
}

TEST(weights_file, too_many_adapters_are_refused_and_nothing_changes)
{
    struct folder f = folder_make();
    struct weights_told w;
    struct err e = {0};
    char name[8];

    for (int i = 0; i < LORAS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "a%d", i);
        cr_assert_eq(weights_tell(f.path, str_cstr(name), STR("1"), false, &e), 0, "%s", e.text);
    }
    cr_expect_eq(weights_tell(f.path, STR("more"), STR("1"), false, &e), -1);
    cr_expect(e.kind == ERR_INVALID && str_find(str_cstr(e.text), STR("64"), 0) != SIZE_MAX);
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect_eq(w.loras.n, LORAS_MAX);
    weights_told_done(&w);
    folder_remove(&f);
}

TEST(weights_file, tellers_at_once_lose_nothing)
{
    struct folder f = folder_make();
    struct weights_told w;
    struct err e = {0};
    char name[8];

    for (int i = 0; i < TELLERS; i++) {
        if (fork() != 0)
            continue;
        for (int k = 0; k < 4; k++) {
            (void)snprintf(name, sizeof(name), "%d-%d", i, k);
            if (weights_tell(f.path, str_cstr(name), STR("1"), false, &e))
                _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < TELLERS; i++) {
        int status = -1;

        cr_assert(wait(&status) > 0 && status == 0);
    }
    cr_assert_eq(weights_load(f.path, &w, &e), 0);
    cr_expect_eq(w.loras.n, (size_t)TELLERS * 4);
    weights_told_done(&w);
    folder_remove(&f);
}

TEST(weights_file, damaged_files_are_told)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "{}",
                                      "{\"adapters\":[{}]}",
                                      "{\"adapters\":[{\"name\":\"a\"}]}",
                                      "{\"adapters\":[{\"name\":\"\",\"version\":\"1\"}]}"};
    struct folder f = folder_make();
    struct weights_told w;
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        FILE *file = fopen(f.file, "w");

        cr_assert(file && fputs(bad[i], file) >= 0 && fclose(file) == 0);
        cr_expect_eq(weights_load(f.path, &w, &e), -1, "%s", bad[i]);
        cr_expect(e.kind == ERR_CONFIG && w.loras.n == 0, "%s", bad[i]);
        cr_expect_eq(weights_tell(f.path, STR("a"), STR("1"), false, &e), -1, "%s", bad[i]);
        cr_expect_eq(e.kind, ERR_STORAGE_FAILED, "%s", bad[i]);
    }
    folder_remove(&f);
}
