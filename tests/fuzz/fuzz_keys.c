/* fuzz: rg_common */
#include "common/proc/presented.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/proc/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char SECRET[] = "a secret of the fuzzer, long enough\n";
static const char ADMIN[] = "# a comment\nthe-admin-key\n";
static const char ID[] = "w12-0123456789abcdef0123456789abcdef";

/* A file in memory, by a name that open() takes. */
static int file_of(const void *bytes, size_t n, char path[64])
{
    int fd = memfd_create("keys", MFD_CLOEXEC);

    CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    (void)snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static int load(const void *admins, size_t n_admins, const void *secret, size_t n_secret,
                struct keys **ret)
{
    char admin_path[64], secret_path[64];
    int a = file_of(admins, n_admins, admin_path), s = file_of(secret, n_secret, secret_path);
    struct err e;
    int rc = keys_load(admin_path, secret_path, "/nonexistent", ret, &e);

    close(a);
    close(s);
    return rc;
}

/* Only the admin key and the two keys of an id under our secret are ours, whatever a text says. */
static void check_text(const struct keys *k, struct str text)
{
    enum key_scope claimed = KEY_NONE, scope;
    char good[KEY_TEXT_MAX];
    struct str id = {0}, checked = {0};
    uint32_t index = 0;
    int form = keys_parse(text, &claimed, &id, &index);

    scope = keys_check(k, text, &checked);
    if (scope == KEY_ADMIN)
        CHECK(str_eq_c(text, "the-admin-key"));
    if (form) {
        CHECK(scope == KEY_NONE || scope == KEY_ADMIN);
        return;
    }
    CHECK(claimed == KEY_AGENT || claimed == KEY_RUNNER);
    CHECK(id.p >= text.p && id.p + id.len <= text.p + text.len && index <= ID_INDEX_MAX);
    keys_make(k, claimed, id, good);
    CHECK((scope == claimed) == str_eq_c(text, good));
    if (scope != KEY_NONE)
        CHECK(str_eq(checked, id));
}

/* However keys are shown: what is proven is in one of the texts, and nothing of two of ours. */
static void check_shown(const struct keys *k, const uint8_t *data, size_t size)
{
    struct str rest = str_of((const char *)data, size);
    char own[KEY_TEXT_MAX], other[KEY_TEXT_MAX];
    struct presented shown = {.n = 0};
    struct proof proof;
    struct err e;

    while (rest.len > 0 && shown.n < 3) {
        struct str line = str_sub(rest, 0, str_find(rest, STR("\n"), 0));

        presented_add(&shown, shown.n % 2 ? PRESENTED_BEARER : PRESENTED_PLAIN, line);
        rest = str_sub(rest, line.len + 1, rest.len);
    }
    if (presented_prove(&shown, k, &proof, &e) == 0 && proof.scope != KEY_NONE)
        CHECK(shown.n > 0 && (proof.scope == KEY_ADMIN) == (proof.id.p == NULL));
    keys_make(k, KEY_AGENT, str_cstr(ID), own);
    keys_make(k, KEY_RUNNER, str_cstr(ID), other);
    shown.n = MIN_OF(shown.n, (size_t)1);
    presented_add(&shown, PRESENTED_PLAIN, str_cstr(own));
    CHECK(presented_prove(&shown, k, &proof, &e) != 0 || proof.scope == KEY_AGENT);
    presented_add(&shown, PRESENTED_PLAIN, str_cstr(other));
    CHECK(presented_prove(&shown, k, &proof, &e) != 0 && proof.scope == KEY_NONE);
}

/* Our own key with the bytes changed that the input names. */
static void check_changed(const struct keys *k, const uint8_t *data, size_t size)
{
    char own[KEY_TEXT_MAX], changed[KEY_TEXT_MAX];
    size_t len;

    keys_make(k, size % 2 ? KEY_AGENT : KEY_RUNNER, str_cstr(ID), own);
    len = strlen(own);
    memcpy(changed, own, sizeof(own));
    for (size_t i = 0; i + 1 < size; i += 2)
        changed[data[i] % len] = (char)(changed[data[i] % len] ^ data[i + 1]);
    check_text(k, str_of(changed, len));
}

static void check_files(const uint8_t *data, size_t size)
{
    size_t cut = size ? data[0] % size : 0;
    struct keys *k = NULL;
    char key[KEY_TEXT_MAX];
    struct str id;

    if (load(data, cut, data + cut, size - cut, &k))
        return;
    keys_make(k, KEY_AGENT, str_cstr(ID), key);
    CHECK(keys_check(k, str_cstr(key), &id) == KEY_AGENT && str_eq_c(id, ID));
    CHECK(keys_check(k, str_of("", 0), &id) == KEY_NONE);
    keys_free(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct keys *k;
    char *exact;

    if (size == 0)
        return 0;
    if (!k)
        CHECK(load(ADMIN, sizeof(ADMIN) - 1, SECRET, sizeof(SECRET) - 1, &k) == 0);
    exact = malloc(MAX_OF(size - 1, (size_t)1)); /* exactly so long: reads beyond it are found */
    CHECK(exact);
    memcpy(exact, data + 1, size - 1);
    if (data[0] % 4 == 0)
        check_files(data + 1, size - 1);
    else if (data[0] % 8 == 2)
        check_shown(k, data + 1, size - 1);
    else if (data[0] % 4 == 1)
        check_changed(k, data + 1, size - 1);
    else
        check_text(k, str_of(exact, size - 1));
    free(exact);
    return 0;
}
