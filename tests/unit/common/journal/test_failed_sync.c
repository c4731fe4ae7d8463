/* A disk that fails to sync, or has no space for what a journal needs. The linker replaces fsync by
 * this file's functions (see CMakeLists.txt). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/journal/syncer.h"
#include "common/os/loop.h"
#include "journal_kit.h"

static bool folders_fail, files_fail;

int __real_fsync(int fd);     /* NOLINT(bugprone-reserved-identifier): names of the linker */
int __wrap_fsync(int fd);     /* NOLINT(bugprone-reserved-identifier) */
int __real_fdatasync(int fd); /* NOLINT(bugprone-reserved-identifier) */
int __wrap_fdatasync(int fd); /* NOLINT(bugprone-reserved-identifier) */

int __wrap_fsync(int fd) /* NOLINT(bugprone-reserved-identifier) */
{
    errno = EIO;
    return folders_fail ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd) /* NOLINT(bugprone-reserved-identifier) */
{
    errno = EIO;
    return files_fail ? -1 : __real_fdatasync(fd);
}

static void run(const char *what)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "cd %s && %s", dir, what);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a fixed text */
}

/* Opens a worker's journal, or a tool's with `syncs`. Returns NULL if it cannot be opened. */
static struct journal *open_for(struct loop *loop, enum journal_durability durability,
                                struct buf *replayed)
{
    struct journal_options o = {.dir = dir,
                                .durability = durability,
                                .syncs = durability == JOURNAL_PROCESS,
                                .segment_bytes = 256};
    struct journal *j = NULL;
    struct err e = {0};

    buf_clear(replayed);
    if (journal_open(loop, &o, collect, replayed, &j, &e))
        cr_expect_eq(e.kind, ERR_IO, "%s", e.text);
    return j;
}

static int try_append(struct journal *j, const char *payload)
{
    struct err e = {0};

    return journal_append(j, STR("w0-live"), str_cstr(payload), NULL, NULL, &e);
}

static int segments(void)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    int n = 0;

    cr_assert_not_null(d);
    while ((entry = readdir(d)) != NULL)
        n += strncmp(entry->d_name, "seg-", 4) == 0;
    (void)closedir(d);
    return n;
}

/* Makes a journal of two segments. The first one has a needed record and much waste. */
static struct journal *make_wasted(struct loop *loop, enum journal_durability durability)
{
    struct buf none = {0};
    struct journal *j = open_for(loop, durability, &none);
    char many[200];

    memset(many, 'x', sizeof(many));
    many[sizeof(many) - 1] = '\0';
    cr_assert_not_null(j);
    append(j, "w0-live", "1");
    append(j, "w0-gone", many);
    append(j, "w0-live", "2");
    journal_drop_session(j, STR("w0-gone"));
    buf_done(&none);
    return j;
}

/* Each start rewrites the last segment. If the new name may not be on disk, the old segment stays
 * at this start and the next, so either manifest is valid. */
TEST_WITH(journal_sync, a_start_that_fails_loses_nothing, replay)
{
    struct loop *loop = loop_new(&f->e);
    struct journal *j;

    j = open_for(loop, JOURNAL_PROCESS, &f->got);
    append(j, "w0-a", "one");
    journal_close(j);
    for (int power_cut = 0; power_cut < 2; power_cut++) {
        run("cp MANIFEST before");
        folders_fail = true;
        cr_expect_null(open_for(loop, JOURNAL_POWER, &f->got));
        cr_expect_null(open_for(loop, JOURNAL_POWER, &f->got), "all that is named is there still");
        folders_fail = false;
        if (power_cut)
            run("cp before MANIFEST");
        j = open_for(loop, JOURNAL_POWER, &f->got);
        cr_assert_not_null(j);
        check_replayed(&f->got, "w0-a=one;");
        cr_expect_eq(segments(), 1, "what is known to be needless is removed");
        journal_close(j);
    }
    loop_free(loop);
}

/* The tool fails, and leaves a journal that opens with either manifest. */
TEST_WITH(journal_sync, a_compaction_that_fails_loses_nothing, replay)
{
    struct journal *j;
    int rc = 1;

    for (int power_cut = 0; power_cut < 2; power_cut++) {
        j = make_wasted(NULL, JOURNAL_PROCESS);
        run("cp MANIFEST before");
        folders_fail = true;
        while (rc == 1)
            rc = journal_compact(j, true, &f->e);
        cr_expect_eq(rc, -1);
        cr_expect_eq(f->e.kind, ERR_IO);
        cr_expect_eq(segments(), 3, "the old one, the new one, and the last one");
        cr_expect_eq(try_append(j, "x"), -1);
        folders_fail = false;
        rc = journal_compact(j, true, &f->e);
        cr_expect_eq(rc, -1, "nobody knows what is on the disk");
        journal_close(j);
        if (power_cut)
            run("cp before MANIFEST");
        j = open_for(NULL, JOURNAL_PROCESS, &f->got);
        cr_assert_not_null(j);
        cr_expect(str_find(buf_str(&f->got), STR("w0-live=1;"), 0) != SIZE_MAX);
        cr_expect(str_find(buf_str(&f->got), STR("w0-live=2;"), 0) != SIZE_MAX);
        cr_expect_eq(segments(), 2);
        journal_close(j);
        run("rm -f seg-* MANIFEST");
        rc = 1;
    }
}

/* A tool also stops if the last segment cannot be synced. The segment that it wanted to remove
 * stays. */
TEST_WITH(journal_sync, a_tool_that_cannot_sync_has_an_error, replay)
{
    struct journal *j;
    int rc = 1;

    j = make_wasted(NULL, JOURNAL_PROCESS);
    journal_drop_session(j, STR("w0-live")); /* the whole first segment is dead */
    files_fail = true;
    while (rc == 1)
        rc = journal_compact(j, true, &f->e);
    files_fail = false;
    cr_expect_eq(rc, -1);
    cr_expect_eq(journal_compact(j, true, &f->e), -1);
    journal_close(j);
    j = open_for(NULL, JOURNAL_PROCESS, &f->got);
    cr_expect(str_find(buf_str(&f->got), STR("w0-live=1;"), 0) != SIZE_MAX);
    journal_close(j);
}

/* A serving process ends at once, as after any other failed fsync. */
TEST_WITH(journal_sync, who_serves_ends, replay)
{
    struct journal *j;
    pid_t pid;
    int status = 0;

    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        j = make_wasted(loop_new(&f->e), JOURNAL_POWER);
        folders_fail = true;
        while (journal_compact(j, true, &f->e) == 1)
            ;
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %d", status);
    j = open_for(NULL, JOURNAL_PROCESS, &f->got);
    cr_assert_not_null(j);
    cr_expect(str_find(buf_str(&f->got), STR("w0-live=1;"), 0) != SIZE_MAX);
    cr_expect(str_find(buf_str(&f->got), STR("w0-live=2;"), 0) != SIZE_MAX);
    journal_close(j);
}

/* Repeated attempts on a full disk must not fill it further. */
TEST_WITH(journal_sync, a_segment_that_cannot_begin_leaves_no_file, replay)
{
    struct rlimit before, no_room;
    struct journal *j;
    int n;

    j = make_wasted(NULL, JOURNAL_PROCESS);
    n = segments();
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    no_room = (struct rlimit){4, before.rlim_max}; /* less than the head of a segment */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &no_room), 0);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(journal_compact(j, true, &f->e), -1);
        cr_expect_eq(f->e.kind, ERR_STORAGE_FULL);
    }
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    cr_expect_eq(segments(), n, "a new segment without its head");
    run("mkdir MANIFEST.new"); /* makes writing a manifest fail */
    while (try_append(j, "goes on until the segment is full") == 1)
        ;
    for (int i = 0; i < 3; i++)
        cr_expect_eq(try_append(j, "goes on until the segment is full"), -1);
    cr_expect_eq(segments(), n, "a new segment that no manifest names");
    run("rmdir MANIFEST.new");
    cr_expect_eq(try_append(j, "goes on"), 1);
    journal_close(j);
}

/* --- without descriptors --- */

/* Lets all attempts to open a descriptor fail. Returns the limit to restore. */
static struct rlimit take_descriptors(void)
{
    struct rlimit before, none;
    int lowest = dup(0);

    cr_assert_geq(lowest, 0);
    (void)close(lowest);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)lowest, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    cr_assert_eq(dup(0), -1);
    return before;
}

struct told {
    uint64_t ticket;
    int failed;
};

static void on_told(void *ctx, uint64_t ticket, int failed, uint64_t took_us)
{
    struct told *t = ctx;

    (void)took_us;
    t->ticket = ticket;
    t->failed = failed ? failed : t->failed;
}

/* The callback of a single ticket is called, whether the disk accepts the sync or not. */
TEST_WITH(journal_sync, a_process_without_descriptors_syncs_all_the_same, replay)
{
    struct loop *loop = loop_new(&f->e);
    struct told told = {0};
    struct syncer *s;
    struct rlimit before;
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/file", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(syncer_new(loop, on_told, &told, &s, &f->e), 0);
    before = take_descriptors();
    for (uint64_t want = 1; want <= 4; want++) {
        files_fail = want == 3;
        cr_expect_eq(syncer_ask(s, fd), want);
        for (int i = 0; i < 20 && told.ticket < want; i++)
            (void)loop_poll(loop, 100);
        cr_expect_eq(told.ticket, want);
        cr_expect_eq(told.failed, want < 3 ? 0 : EIO);
    }
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_expect_eq(syncer_ask(s, fd), 5);
    for (int i = 0; i < 20 && told.ticket < 5; i++)
        (void)loop_poll(loop, 100);
    cr_expect_eq(told.ticket, 5);
    syncer_free(s);
    (void)close(fd);
    loop_free(loop);
}
