#include "testing.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/cancel.h"
#include "common/codec/json.h"
#include "common/codec/sha256.h"
#include "worker/media/media_store.h"

static const char A[] = "w0-0000000000000000000000000000000a",
                  B[] = "w0-0000000000000000000000000000000b";

struct fixture {
    char dir[64];
    struct media_store *store;
    struct buf got; /* of the store; for the test */
    struct err e;
    char media[SHA256_HEX_LEN + 1], path[256];
};

static void fixture_open(struct fixture *f)
{
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/rg-media-XXXXXX");
    cr_assert(mkdtemp(f->dir));
    f->store = media_store_new(&(struct media_options){.state_dir = f->dir, .sync = true});
}

/* Opens the store again, which lets a session have so many bytes. */
static void limit_sessions(struct fixture *f, uint64_t session_bytes)
{
    media_store_free(f->store);
    f->store = media_store_new(
        &(struct media_options){.state_dir = f->dir, .sync = true, .session_bytes = session_bytes});
}

static void fixture_close(struct fixture *f)
{
    char command[128];

    buf_done(&f->got);
    media_store_free(f->store);
    (void)snprintf(command, sizeof(command), "rm -rf %s", f->dir);
    cr_assert_eq(system(command), 0);
}

/* Returns the number of links of the node's copy; 0: no copy. */
static unsigned links(const struct fixture *f, const char *media)
{
    char path[256];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/media/%.2s/%s", f->dir, media, media);
    return stat(path, &st) == 0 ? (unsigned)st.st_nlink : 0;
}

static void put(const struct fixture *f, const char *id, const char *bytes,
                char media[SHA256_HEX_LEN + 1])
{
    struct err e = {0};

    sha256_hex(str_cstr(bytes), media);
    cr_assert_eq(
        media_store_put(f->store, str_cstr(id), str_of(media, SHA256_HEX_LEN), str_cstr(bytes), &e),
        0, "%s", e.text);
}

static bool is_object(struct str text)
{
    return str_starts(text, STR("{")) && str_ends(text, STR("}"));
}

static const struct media_pin PIN = {
    .session_id = {A, sizeof(A) - 1}, .url = {"http://x/a", 10}, .is_whole = is_object};

static void pin_path(const struct fixture *f, char path[256])
{
    char name[SHA256_HEX_LEN + 1];

    sha256_hex(PIN.url, name);
    (void)snprintf(path, 256, "%s/media/sessions/%s/%s.url", f->dir, A, name);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert(file);
    (void)fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

TEST_WITH(media_store, the_first_note_of_a_url_holds, fixture)
{
    cr_assert_eq(media_store_pinned(f->store, &PIN, &f->got, &f->e), 0);
    put(f, A, "one", f->media);
    cr_assert_eq(media_store_pin(f->store, &PIN, STR("{1}"), &f->got, &f->e), 0, "%s", f->e.text);
    cr_assert_eq(f->got.len, 0);
    cr_assert_eq(media_store_pin(f->store, &PIN, STR("{2}"), &f->got, &f->e), 1, "%s", f->e.text);
    cr_assert(str_eq_c(buf_str(&f->got), "{1}"));
    buf_clear(&f->got);
    cr_assert_eq(media_store_pinned(f->store, &PIN, &f->got, &f->e), 1);
    cr_assert(str_eq_c(buf_str(&f->got), "{1}"));
}

TEST_WITH(media_store, a_note_that_was_cut_off_is_none_and_is_replaced, fixture)
{
    static const char *const torn[] = {"", "{1", "junk"};

    for (size_t i = 0; i < ARRAY_LEN(torn); i++) {
        put(f, A, "one", f->media);
        pin_path(f, f->path);
        write_text(f->path, torn[i]);
        cr_assert_eq(media_store_pinned(f->store, &PIN, &f->got, &f->e), 0);
        cr_assert_eq(media_store_pin(f->store, &PIN, STR("{2}"), &f->got, &f->e), 0, "%s",
                     f->e.text);
        cr_assert_eq(f->got.len, 0);
        cr_assert_eq(media_store_pinned(f->store, &PIN, &f->got, &f->e), 1);
        cr_assert(str_eq_c(buf_str(&f->got), "{2}"));
        buf_clear(&f->got);
    }
}

static bool is_json_object(struct str text)
{
    const struct json *v = NULL;
    struct arena a = {0};
    bool is = json_parse(&a, text, &v, NULL) == 0 && json_is(v, JSON_OBJECT);

    arena_done(&a);
    return is;
}

TEST_WITH(media_store, cancelled_work_does_not_replace_a_note, fixture)
{
    static const atomic_bool cancelled = true;
    struct media_pin pin = PIN;

    pin.is_whole = is_json_object;
    put(f, A, "one", f->media);
    cr_assert_eq(media_store_pin(f->store, &pin, STR("{\"n\":1}"), &f->got, &f->e), 0, "%s",
                 f->e.text);
    cancel_flag = &cancelled;
    cr_expect_eq(media_store_pinned(f->store, &pin, &f->got, &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_CANCELLED);
    cr_expect_eq(media_store_pin(f->store, &pin, STR("{\"n\":2}"), &f->got, &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_CANCELLED);
    cancel_flag = NULL;
    cr_expect_eq(f->got.len, 0);
    cr_assert_eq(media_store_pinned(f->store, &pin, &f->got, &f->e), 1);
    cr_expect(str_eq_c(buf_str(&f->got), "{\"n\":1}"));
}

TEST_WITH(media_store, a_note_that_cannot_be_read_is_an_error, fixture)
{
    put(f, A, "one", f->media);
    pin_path(f, f->path);
    cr_assert_eq(mkdir(f->path, 0700), 0);
    cr_assert_eq(media_store_pinned(f->store, &PIN, &f->got, &f->e), -1);
    cr_assert_eq(f->e.kind, ERR_STORAGE_FAILED);
    cr_assert_eq(media_store_pin(f->store, &PIN, STR("{2}"), &f->got, &f->e), -1);
}

TEST_WITH(media_store, notes_that_cannot_be_counted_are_an_error, fixture)
{
    put(f, A, "one", f->media);
    (void)snprintf(f->path, sizeof(f->path), "%s/media/sessions/w0-file", f->dir);
    write_text(f->path, "no folder");
    cr_assert_eq(media_store_pin_room(f->store, STR("w0-file"), &f->e), -1);
    cr_assert_eq(f->e.kind, ERR_STORAGE_FAILED);
    cr_assert_eq(unlink(f->path), 0);
    cr_assert_eq(media_store_pin_room(f->store, STR("w0-file"), &f->e), 0);
}

TEST_WITH(media_store, a_session_has_images_from_so_many_urls, fixture)
{
    cr_assert_eq(media_store_pin_room(f->store, STR("w0-0"), &f->e), 0);
    put(f, A, "one", f->media);
    for (unsigned i = 0; i < MEDIA_PINS_MAX; i++) {
        if (i == MEDIA_PINS_MAX - 1)
            cr_assert_eq(media_store_pin_room(f->store, PIN.session_id, &f->e), 0, "%s", f->e.text);
        (void)snprintf(f->path, sizeof(f->path), "%s/media/sessions/%s/%064x.url", f->dir, A, i);
        write_text(f->path, "{}");
    }
    cr_assert_eq(media_store_pin_room(f->store, PIN.session_id, &f->e), -1);
    cr_assert_eq(f->e.kind, ERR_BODY_TOO_LARGE);
    cr_assert(strstr(f->e.text, "4096 URLs"));
    /* there was space when it asked, but another writer used it */
    cr_assert_eq(media_store_pin(f->store, &PIN, STR("{1}"), &f->got, &f->e), -1);
    cr_assert_eq(f->e.kind, ERR_BODY_TOO_LARGE);
    cr_assert_eq(unlink(f->path), 0);
    cr_assert_eq(media_store_pin(f->store, &PIN, STR("{1}"), &f->got, &f->e), 0, "%s", f->e.text);
    cr_assert_eq(media_store_pin(f->store, &PIN, STR("{2}"), &f->got, &f->e), 1, "it is there");
}

/* Checks the picture and reads it. */
static int get(const struct fixture *f, const char *id, const char *media, struct buf *out,
               struct err *e)
{
    struct str session = str_cstr(id), name = str_cstr(media);

    buf_clear(out);
    if (media_store_check(f->store, session, name, e) != 0)
        return -1;
    return media_store_read(f->store, session, name, 0, 100, out, e) < 0 ? -1 : 0;
}

TEST_WITH(media_store, one_copy_for_all_sessions, fixture)
{
    char other[SHA256_HEX_LEN + 1];

    cr_assert_eq(get(f, A, "00", &f->got, &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_NOT_FOUND);
    put(f, A, "picture", f->media);
    put(f, A, "picture", f->media);
    cr_expect_eq(links(f, f->media), 2);
    put(f, B, "picture", f->media);
    cr_expect_eq(links(f, f->media), 3);
    put(f, B, "another", other);
    cr_assert_eq(get(f, B, f->media, &f->got, &f->e), 0);
    cr_expect(str_eq_c(buf_str(&f->got), "picture"));
    /* a session has only the pictures that it referred to */
    cr_assert_eq(get(f, A, other, &f->got, &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_NOT_FOUND);
}

static void write_own(const struct fixture *f, const char *id, const char *media, const char *text)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/media/sessions/%s/%s", f->dir, id, media);
    write_text(path, text);
}

/* A file with the right length and other bytes is reported, and written again when the bytes arrive
 * again. */
TEST_WITH(media_store, a_file_is_what_its_name_says, fixture)
{
    struct arena a = {0};
    struct stat st;

    put(f, A, "picture", f->media);
    cr_expect_eq(media_store_check(f->store, str_cstr(A), str_cstr(f->media), &f->e), 0);
    cr_expect_eq(stat(media_store_path(f->store, &a, str_cstr(A), str_cstr(f->media)), &st), 0);
    write_own(f, A, f->media, "pictura");
    cr_expect_eq(media_store_check(f->store, str_cstr(A), str_cstr(f->media), &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_STORAGE_FAILED);
    put(f, A, "picture", f->media);
    cr_expect_eq(media_store_check(f->store, str_cstr(A), str_cstr(f->media), &f->e), 0);
    put(f, B, "picture", f->media);
    cr_expect_eq(media_store_check(f->store, str_cstr(B), str_cstr(f->media), &f->e), 0);
    cr_expect_eq(media_store_check(f->store, str_cstr(B), STR("00"), &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_NOT_FOUND);
    arena_done(&a);
}

static bool is_ours(void *ctx, struct str id)
{
    (void)ctx;
    return str_starts(id, STR("w0-"));
}

static bool is_kept(void *ctx, struct str id)
{
    return str_eq_c(id, ctx);
}

TEST_WITH(media_store, what_no_session_has_is_dropped, fixture)
{
    struct media_sweep sweep = {is_ours, is_kept, (void *)(uintptr_t)B};
    char alone[SHA256_HEX_LEN + 1];

    cr_expect_eq(media_store_sweep(f->store, &sweep), 0);
    put(f, A, "picture", f->media);
    put(f, A, "alone", alone);
    put(f, B, "picture", f->media);
    put(f, "w7-of-another-node", "picture", f->media);
    cr_expect_eq(media_store_sweep(f->store, &sweep), 1);
    cr_expect_eq(links(f, alone), 0);
    cr_expect_eq(links(f, f->media), 3);
    cr_expect_eq(media_store_sweep(f->store, &sweep), 0);
    put(f, A, "alone", alone);
    cr_expect_eq(links(f, alone), 2);
}

TEST_WITH(media_store, a_session_has_room_for_so_much, fixture)
{
    limit_sessions(f, 10);
    put(f, A, "12345678", f->media);
    sha256_hex(STR("123"), f->media);
    cr_assert_eq(media_store_put(f->store, str_cstr(A), str_cstr(f->media), STR("123"), &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_BODY_TOO_LARGE);
    cr_expect_eq(links(f, f->media), 0);
    put(f, A, "12", f->media);
    put(f, B, "123", f->media);
}

static bool has_no_descriptor; /* opendir fails */

DIR *__real_opendir(const char *path); /* NOLINT(bugprone-reserved-identifier) */
DIR *__wrap_opendir(const char *path); /* NOLINT(bugprone-reserved-identifier) */

DIR *__wrap_opendir(const char *path) /* NOLINT(bugprone-reserved-identifier) */
{
    if (!has_no_descriptor)
        return __real_opendir(path);
    errno = EMFILE;
    return NULL;
}

TEST_WITH(media_store, images_that_cannot_be_counted_are_an_error, fixture)
{
    limit_sessions(f, 10);
    put(f, A, "12345678", f->media);
    sha256_hex(STR("123"), f->media);
    has_no_descriptor = true;
    cr_expect_eq(media_store_put(f->store, str_cstr(A), str_cstr(f->media), STR("123"), &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_STORAGE_FAILED);
    has_no_descriptor = false;
    cr_expect_eq(links(f, f->media), 0);
}

/* If the folder is not writable, no file is left. */
TEST(media_store, what_cannot_be_stored_is_said)
{
    struct media_store *m =
        media_store_new(&(struct media_options){.state_dir = "/proc/self/no-such-folder"});
    struct err e = {0};
    char media[SHA256_HEX_LEN + 1];

    sha256_hex(STR("x"), media);
    cr_assert_eq(media_store_put(m, str_cstr(A), str_cstr(media), STR("x"), &e), -1);
    cr_expect_eq(e.kind, ERR_STORAGE_FAILED);
    cr_expect(str_find(str_cstr(e.text), STR("/proc"), 0) == SIZE_MAX);
    media_store_free(m);
}

/* Changes the bytes of a picture's file in `folder` of the store. The changed bytes must not be
 * returned. */
static void spoil(const struct fixture *f, const char *folder, const char *media, const char *text)
{
    struct buf got = {0};
    struct err e = {0};
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/media/%s/%s", f->dir, folder, media);
    write_text(path, text);
    cr_assert_eq(get(f, A, media, &got, &e), -1);
    cr_expect_eq(e.kind, ERR_STORAGE_FAILED);
    cr_expect_eq(got.len, 0);
    buf_done(&got);
}

/* A power cut leaves shorter files. Bytes that arrive again restore them. */
TEST_WITH(media_store, what_was_cut_off_is_made_anew, fixture)
{
    char folder[3];

    put(f, A, "picture", f->media);
    (void)snprintf(folder, sizeof(folder), "%.2s", f->media);
    spoil(f, folder, f->media, "pic"); /* the session's, too: both are one file */
    put(f, B, "picture", f->media);
    cr_assert_eq(get(f, B, f->media, &f->got, &f->e), 0, "%s", f->e.text);
    cr_expect_eq(links(f, f->media), 2); /* the copy is the new file */
    put(f, A, "picture", f->media);
    cr_assert_eq(get(f, A, f->media, &f->got, &f->e), 0, "%s", f->e.text);
    cr_expect(str_eq_c(buf_str(&f->got), "picture"));
    cr_expect_eq(links(f, f->media), 3);
}

TEST_WITH(media_store, other_bytes_of_the_same_length_are_not_handed_out, fixture)
{
    char folder[64];

    put(f, A, "picture", f->media);
    (void)snprintf(folder, sizeof(folder), "sessions/%s", A);
    spoil(f, folder, f->media, "PICTURE");
}

/* A temporary file of a killed writer causes no error, and is removed with the session. */
TEST_WITH(media_store, a_part_of_a_killed_writer_goes_with_the_session, fixture)
{
    struct media_sweep sweep = {is_ours, is_kept, (void *)(uintptr_t)B};

    put(f, A, "one", f->media);
    sha256_hex(STR("picture"), f->media);
    (void)snprintf(f->path, sizeof(f->path), "%s/media/sessions/%s/%s.part", f->dir, A, f->media);
    write_text(f->path, "pic");
    put(f, A, "picture", f->media);
    cr_expect_eq(links(f, f->media), 2);
    write_text(f->path, "pic");
    cr_expect_eq(media_store_sweep(f->store, &sweep), 1);
    cr_expect_eq(access(f->path, F_OK), -1);
    cr_expect_eq(links(f, f->media), 0);
}

TEST_WITH(media_store, a_picture_is_read_piece_by_piece, fixture)
{
    struct media_file file;

    put(f, A, "picture", f->media);
    cr_assert_eq(media_store_open(f->store, str_cstr(B), str_cstr(f->media), &file, &f->e), -1);
    cr_expect_eq(f->e.kind, ERR_NOT_FOUND);
    cr_assert_eq(media_store_open(f->store, str_cstr(A), str_cstr(f->media), &file, &f->e), 0);
    cr_expect_eq(file.left, 7);
    cr_assert_eq(media_file_read(&file, 4, &f->got), 0);
    cr_expect(str_eq_c(buf_str(&f->got), "pict"));
    cr_assert_eq(media_file_read(&file, 4, &f->got), 0);
    cr_expect(str_eq_c(buf_str(&f->got), "picture"));
    cr_expect_eq(file.left, 0);
    media_file_close(&file);
    cr_assert_eq(media_store_open(f->store, str_cstr(A), str_cstr(f->media), &file, &f->e), 0);
    (void)snprintf(f->path, sizeof(f->path), "%s/media/sessions/%s/%s", f->dir, A, f->media);
    write_text(f->path, "pic");
    cr_expect_eq(media_file_read(&file, 7, &f->got), -1); /* the file was truncated */
    media_file_close(&file);
}

/* A second writer of a name, which begins while the first one makes it durable. */
struct rival {
    struct fixture *f;
    int (*write)(const struct fixture *f);
    pthread_t thread;
    bool begun;
    int rc;
    atomic_bool ended;
};

static struct rival *rival;  /* NULL: folders are made durable as ever */
static unsigned n_synced[2]; /* files, folders */

static void *run_rival(void *ctx)
{
    struct rival *r = ctx;

    r->rc = r->write(r->f);
    atomic_store(&r->ended, true);
    return NULL;
}

int __real_fsync(int fd); /* NOLINT(bugprone-reserved-identifier) */
int __wrap_fsync(int fd); /* NOLINT(bugprone-reserved-identifier) */

/* The first writer's folder cannot be made durable. Before it hears that, the second one has had
 * time to do all that it can. */
int __wrap_fsync(int fd) /* NOLINT(bugprone-reserved-identifier) */
{
    struct stat st;

    cr_assert_eq(fstat(fd, &st), 0);
    n_synced[S_ISDIR(st.st_mode)]++;
    if (!rival || rival->begun || !S_ISDIR(st.st_mode))
        return __real_fsync(fd);
    rival->begun = true;
    cr_assert_eq(pthread_create(&rival->thread, NULL, run_rival, rival), 0);
    for (int i = 0; i < 200 && !atomic_load(&rival->ended); i++)
        (void)usleep(1000);
    errno = EIO;
    return -1;
}

static int put_picture(const struct fixture *f)
{
    struct err e = {0};
    char media[SHA256_HEX_LEN + 1];

    sha256_hex(STR("picture"), media);
    return media_store_put(f->store, str_cstr(A), str_cstr(media), STR("picture"), &e);
}

static int put_note(const struct fixture *f)
{
    struct buf held = {0};
    struct err e = {0};
    int rc = media_store_pin(f->store, &PIN, STR("{}"), &held, &e);

    buf_done(&held);
    return rc;
}

static int read_note(const struct fixture *f)
{
    struct buf held = {0};
    struct err e = {0};
    int rc = media_store_pinned(f->store, &PIN, &held, &e);

    buf_done(&held);
    return rc;
}

/* Has both write. The first one fails. */
static int write_twice(struct fixture *f, int (*first)(const struct fixture *),
                       int (*second)(const struct fixture *))
{
    struct rival r = {.f = f, .write = second};

    rival = &r;
    cr_expect_eq(first(f), -1);
    cr_assert(r.begun);
    cr_assert_eq(pthread_join(r.thread, NULL), 0);
    rival = NULL;
    return r.rc;
}

/* --- files of a fleet's store --- */

/* Brings a file of these bytes. */
static enum err_kind bring(const struct fixture *f, const char *media, const char *bytes)
{
    struct err e = {0};
    struct media_arrival *a = media_arrival_new(f->store, str_cstr(A), str_cstr(media), &e);

    if (a && media_arrival_add(a, str_cstr(bytes), &e) == 0)
        (void)media_arrival_finish(a, &e);
    media_arrival_free(a);
    return e.kind;
}

TEST_WITH(media_store, a_file_that_arrives_in_part_is_none, fixture)
{
    sha256_hex(STR("picture"), f->media);
    cr_expect_eq(bring(f, f->media, "pict"), ERR_IO);
    cr_expect(!media_store_has(f->store, str_cstr(A), str_cstr(f->media)));
    cr_expect_eq(bring(f, f->media, "picture"), ERR_NONE);
    cr_expect(media_store_has(f->store, str_cstr(A), str_cstr(f->media)));
    cr_expect_eq(bring(f, "../picture", "picture"), ERR_IO);
}

TEST_WITH(media_store, a_file_that_cannot_be_read_is_not_a_missing_one, fixture)
{
    put(f, A, "picture", f->media);
    cr_expect_eq(media_store_read(f->store, str_cstr(A), str_cstr(f->media), 4, 2, &f->got, &f->e),
                 7);
    cr_expect(str_eq_c(buf_str(&f->got), "ur"));
    cr_expect_eq(media_store_read(f->store, str_cstr(B), str_cstr(f->media), 0, 9, &f->got, &f->e),
                 -1);
    cr_expect_eq(f->e.kind, ERR_NOT_FOUND);
    (void)snprintf(f->path, sizeof(f->path), "%s/media/sessions/%s/%s", f->dir, A, f->media);
    cr_assert_eq(unlink(f->path), 0);
    cr_assert_eq(symlink(f->path, f->path), 0); /* opening it fails */
    cr_expect_eq(media_store_read(f->store, str_cstr(A), str_cstr(f->media), 0, 9, &f->got, &f->e),
                 -1);
    cr_expect_eq(f->e.kind, ERR_STORAGE_FAILED);
}

TEST_WITH(media_store, a_name_counts_when_it_is_durable, fixture)
{
    sha256_hex(STR("picture"), f->media);
    cr_expect_eq(write_twice(f, put_picture, put_picture), 0);
    cr_expect_eq(get(f, A, f->media, &f->got, &f->e), 0, "it was said to be stored");
    cr_expect_eq(write_twice(f, put_note, put_note), 0);
    cr_expect_eq(read_note(f), 1, "it was said to be recorded");
    fixture_close(f);
    fixture_open(f);
    put(f, A, "picture", f->media);
    cr_expect_eq(write_twice(f, put_note, read_note), 0, "the note was not recorded");
}

/* Reports whether the write synced a file and its folder. */
static bool syncs(const struct fixture *f, int (*write)(const struct fixture *))
{
    memset(n_synced, 0, sizeof(n_synced));
    cr_expect_neq(write(f), -1);
    return n_synced[0] > 0 && n_synced[1] > 0;
}

/* A power cut would lose what a killed process, or one without `sync`, has left in the cache. */
TEST_WITH(media_store, a_file_that_others_left_is_synced_once, fixture)
{
    int (*const writes[])(const struct fixture *) = {put_picture, put_note, read_note};

    for (int i = 0; i < 3; i++) {
        media_store_free(f->store);
        f->store = media_store_new(&(struct media_options){.state_dir = f->dir});
        cr_expect(!syncs(f, put_picture) && !syncs(f, put_note));
        media_store_free(f->store);
        f->store = media_store_new(&(struct media_options){.state_dir = f->dir, .sync = true});
        cr_expect(syncs(f, writes[i]), "write %d", i);
        cr_expect(!syncs(f, writes[i]), "write %d", i);
        fixture_close(f);
        fixture_open(f);
    }
}
