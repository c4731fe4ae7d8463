#include "common/base/limits.h"
#include "common/proc/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

static const char ID[] = "w3-0123456789abcdef0123456789abcdef";
static const char OTHER[] = "w3-0123456789abcdef0123456789abcdee";

static void write_to(const char *dir, const char *name, const char *text, char path[256])
{
    FILE *f;

    (void)snprintf(path, 256, "%s/%s", dir, name);
    f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_all(const char *dir)
{
    static const char *const names[] = {"key-secret", "admin", "secret", "rotated"};
    char path[256];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    cr_assert_eq(rmdir(dir), 0, "something else was left in the folder");
}

TEST(keys, every_bit_of_a_session_key_matters)
{
    char dir[] = "/tmp/rg-keys-XXXXXX", path[256], text[KEY_TEXT_MAX], bad[KEY_TEXT_MAX];
    struct keys *k, *again;
    struct str id;
    struct stat st;
    struct err e;

    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(keys_load(NULL, NULL, dir, &k, &e), 0, "%s", e.text);
    cr_assert_eq(keys_load(NULL, NULL, dir, &again, &e), 0);
    cr_assert_not(keys_required(k));
    keys_make(k, KEY_AGENT, str_cstr(ID), text);
    cr_assert_eq(keys_check(k, str_cstr(text), &id), KEY_AGENT);
    cr_assert(str_eq_c(id, ID));
    cr_assert_eq(keys_check(again, str_cstr(text), &id), KEY_AGENT);
    for (size_t i = 0; i < strlen(text); i++) {
        memcpy(bad, text, sizeof(bad));
        bad[i] ^= 1;
        cr_assert_eq(keys_check(k, str_cstr(bad), &id), KEY_NONE, "byte %zu", i);
        cr_assert_null(id.p);
        cr_assert_eq(keys_check(k, str_of(text, i), &id), KEY_NONE, "cut at %zu", i);
    }
    memcpy(bad, text, sizeof(bad));
    bad[2] = 'r'; /* an agent's key, changed to a runner's */
    cr_assert_eq(keys_check(k, str_cstr(bad), &id), KEY_NONE);
    keys_make(k, KEY_RUNNER, str_cstr(OTHER), bad);
    cr_assert_eq(keys_check(k, str_cstr(bad), &id), KEY_RUNNER);
    cr_assert(str_eq_c(id, OTHER));
    (void)snprintf(path, sizeof(path), "%s/key-secret", dir);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 077, 0);
    keys_free(k);
    keys_free(again);
    remove_all(dir);
}

TEST(keys, admin_keys_are_lines_of_a_file)
{
    char dir[] = "/tmp/rg-keys-XXXXXX", path[256];
    struct keys *k;
    struct str id;
    struct err e;

    cr_assert_not_null(mkdtemp(dir));
    write_to(dir, "admin", "# who\n\n  first key \r\nsecond\n", path);
    cr_assert_eq(keys_load(path, NULL, dir, &k, &e), 0, "%s", e.text);
    cr_assert(keys_required(k));
    cr_assert_eq(keys_check(k, STR("first key"), &id), KEY_ADMIN);
    cr_assert_eq(keys_check(k, STR("second"), &id), KEY_ADMIN);
    cr_assert_eq(keys_check(k, STR("secon"), &id), KEY_NONE);
    cr_assert_eq(keys_check(k, STR("# who"), &id), KEY_NONE);
    cr_assert_eq(keys_check(k, STR(""), &id), KEY_NONE);
    keys_free(k);
    write_to(dir, "admin", "\n# nothing\n", path);
    cr_assert_eq(keys_load(path, NULL, dir, &k, &e), -1);
    remove_all(dir);
}

TEST(keys, a_rotated_secret_still_verifies_older_keys)
{
    char dir[] = "/tmp/rg-keys-XXXXXX", path[256], old[KEY_TEXT_MAX], fresh[KEY_TEXT_MAX];
    struct keys *k;
    struct str id;
    struct err e;

    cr_assert_not_null(mkdtemp(dir));
    write_to(dir, "secret", "the first secret, long enough 0123456789\n", path);
    cr_assert_eq(keys_load(NULL, path, dir, &k, &e), 0, "%s", e.text);
    keys_make(k, KEY_AGENT, str_cstr(ID), old);
    keys_free(k);
    write_to(dir, "rotated",
             "the second secret, long enough 012345678\n"
             "the first secret, long enough 0123456789\n",
             path);
    cr_assert_eq(keys_load(NULL, path, dir, &k, &e), 0, "%s", e.text);
    keys_make(k, KEY_AGENT, str_cstr(ID), fresh);
    cr_assert_str_neq(old, fresh);
    cr_assert_eq(keys_check(k, str_cstr(old), &id), KEY_AGENT);
    cr_assert_eq(keys_check(k, str_cstr(fresh), &id), KEY_AGENT);
    keys_free(k);
    write_to(dir, "secret", "short\n", path);
    cr_assert_eq(keys_load(NULL, path, dir, &k, &e), -1);
    cr_assert_null(strstr(e.text, "short\n"));
    remove_all(dir);
}

TEST(keys, routing_reads_the_index_without_verifying)
{
    enum key_scope scope;
    uint32_t index;
    struct str id;
    char text[KEY_TEXT_MAX];

    (void)snprintf(text, sizeof(text), "rgr-%s-%064d", ID, 0);
    cr_assert_eq(keys_parse(str_cstr(text), &scope, &id, &index), 0);
    cr_assert_eq(scope, KEY_RUNNER);
    cr_assert_eq(index, 3);
    cr_assert_eq(keys_parse(STR("sk-anything"), &scope, &id, &index), -1);
    cr_assert_eq(keys_parse(str_of(text, strlen(text) - 1), &scope, &id, &index), -1);
}

/* Makes a query of n parameters that are not keys. The last one has this value. */
static struct str query_of(size_t n, const char *last, char text[1000])
{
    size_t len = 0;

    for (size_t i = 1; i < n; i++)
        len += (size_t)snprintf(text + len, 1000 - len, "=%zu&&", i);
    len += (size_t)snprintf(text + len, 1000 - len, "x=%s", last);
    return str_of(text, len);
}

/* Parameters after the limit are not checked. A query with more is refused, so no key can hide
 * there. */
TEST(keys, a_query_shows_no_key_and_not_very_many_values)
{
    char dir[] = "/tmp/rg-keys-XXXXXX", path[256], text[1000], own[KEY_TEXT_MAX];
    const char *shown[] = {"an-admin-key", own};
    struct keys *k;
    struct err e;

    cr_assert_not_null(mkdtemp(dir));
    write_to(dir, "admin", "an-admin-key\n", path);
    cr_assert_eq(keys_load(path, NULL, dir, &k, &e), 0, "%s", e.text);
    keys_make(k, KEY_AGENT, str_cstr(ID), own);
    cr_expect_eq(keys_check_query(k, STR(""), &e), 0);
    cr_expect_eq(keys_check_query(k, query_of(KEYS_QUERY_MAX, "no-key", text), &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
        for (size_t n = 1; n <= KEYS_QUERY_MAX; n += KEYS_QUERY_MAX - 1) {
            e = (struct err){0};
            cr_expect_eq(keys_check_query(k, query_of(n, shown[i], text), &e), -1);
            cr_expect_eq(e.kind, ERR_MISSING_KEY, "key %zu of %zu", i, n);
        }
        e = (struct err){0};
        cr_expect_eq(keys_check_query(k, query_of(KEYS_QUERY_MAX + 1, shown[i], text), &e), -1);
        cr_expect_eq(e.kind, ERR_INVALID);
        cr_expect_not_null(strstr(e.text, "64"), "%s", e.text);
    }
    keys_free(k);
    remove_all(dir);
}
