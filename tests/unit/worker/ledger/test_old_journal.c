#include "testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/err.h"
#include "worker/ledger/old_journal.h"

/* Makes a file that was last changed so many seconds ago. */
static void make_file(const char *folder, const char *name, time_t age)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
    char path[PLACE_FOLDER_MAX + 32];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && futimens(fd, times) == 0 && close(fd) == 0);
}

/* Removes the folder. */
static void remove_folder(const struct old_journal *f)
{
    char command[PLACE_FOLDER_MAX + 32];

    (void)snprintf(command, sizeof(command), "rm -r %s", f->path);
    cr_assert_eq(system(command), 0);
}

TEST(old_journal, a_place_that_no_process_served_has_no_records)
{
    struct old_journal f = {.path = "/tmp/rg-old-XXXXXX"};
    struct err e = {0};

    cr_assert(mkdtemp(f.path));
    make_file(f.path, "fleet-base", 0);
    cr_expect_eq(old_journal_read(&f, NULL, &e), 0, "%s", e.text);
    make_file(f.path, "seg-00000001", 0);
    cr_expect_eq(old_journal_read(&f, NULL, &e), -1, "a manifest is missing");
    remove_folder(&f);
    old_journal_done(&f);
}

/* Sessions of a journal that seems young would count as lost instead of ended. */
TEST(old_journal, the_result_of_a_comparison_makes_it_no_younger)
{
    struct old_journal f = {.path = "/tmp/rg-old-XXXXXX"};
    struct err e = {0};

    cr_assert(mkdtemp(f.path));
    make_file(f.path, "seg-00000001", 7200);
    make_file(f.path, "seg-00000002", 3600);
    make_file(f.path, "compared.new", 0);
    (void)old_journal_read(&f, NULL, &e); /* fails: there is no manifest */
    cr_expect(f.age_ms >= 3600000 && f.age_ms < 3660000, "%llu", (unsigned long long)f.age_ms);
    remove_folder(&f);
    cr_expect_eq(old_journal_read(&f, NULL, &e), -1);
    cr_expect_eq(e.kind, ERR_IO);
    old_journal_done(&f);
}
