/* Makes, reads and verifies keys (keys.h). A session key carries its session's id and a MAC over
 * it, so its verification needs only the secret. Secrets are compared in constant time and
 * overwritten before their memory is freed. Admin keys are kept as digests, all of which have the
 * same length. */

#include "common/proc/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <mbedtls/constant_time.h>
#include <mbedtls/md.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/hex.h"
#include "common/codec/query.h"
#include "common/os/file.h"

enum { MAC_BYTES = 32, FILE_MAX = 1 << 20, SECRET_MIN = 32, SECRET_HEX = 64, KNOWN_MAX = 512 };

/* A session key that was verified before; len 0: empty. */
struct known {
    char text[KEY_TEXT_MAX];
    unsigned char len;
};

struct secret {
    char *text;
    size_t len;
    char node_proof[KEYS_PRINT_MAX]; /* computed once, as each hop needs it */
};

struct keys {
    struct secret *secrets; /* newest first */
    size_t n_secrets;
    /* SHA-256 of each admin key, so that all have the same length */
    unsigned char (*admins)[MAC_BYTES];
    size_t n_admins;
    bool required;
    struct known *known; /* array of KNOWN_MAX; each key is at the index of its hash */
};

/* Returns the scope's name in the input of the MAC. */
static const char *scope_name(enum key_scope scope)
{
    static const char *const names[] = {[KEY_AGENT] = "agent",
                                        [KEY_RUNNER] = "runner",
                                        [KEY_EXECUTOR] = "executor",
                                        [KEY_ADMIN] = "service"};

    return names[scope];
}

struct str keys_next_line(struct str *rest)
{
    while (rest->len > 0) {
        struct str line = str_trim(str_cut(rest, '\n'));

        if (line.len > 0 && line.p[0] != '#')
            return line;
    }
    return (struct str){0};
}

static void erase_buffer(struct buf *b)
{
    if (b->p)
        mbedtls_platform_zeroize(b->p, b->cap);
    buf_done(b);
}

/* Adds an admin key, of which only the digest is kept. */
static int add_admin(struct keys *k, struct str line, const char *path, struct err *e)
{
    (void)path;
    (void)e;
    k->admins = mem_realloc_array(k->admins, k->n_admins + 1, sizeof(*k->admins));
    CHECK(mbedtls_sha256_ret((const unsigned char *)line.p, line.len, k->admins[k->n_admins], 0) ==
          0);
    k->n_admins++;
    k->required = true;
    return 0;
}

/* Adds a secret. The newest is first, as in the file. */
static int add_secret(struct keys *k, struct str line, const char *path, struct err *e)
{
    if (line.len < SECRET_MIN)
        return err_set(e, ERR_CONFIG, "%s: a secret needs at least %d characters", path,
                       SECRET_MIN);
    k->secrets = mem_realloc_array(k->secrets, k->n_secrets + 1, sizeof(*k->secrets));
    k->secrets[k->n_secrets++] =
        (struct secret){.text = mem_strndup(line.p, line.len), .len = line.len};
    return 0;
}

/* Adds each line of a file, which has at least one. */
static int load_lines(struct keys *k, const char *path, const char *what,
                      int (*add)(struct keys *k, struct str line, const char *path, struct err *e),
                      struct err *e)
{
    struct buf text = {0};
    struct str rest, line;
    bool found = false;
    int rc = file_read(path, FILE_MAX, &text, e);

    rest = buf_str(&text);
    while (rc == 0 && (line = keys_next_line(&rest)).p) {
        rc = add(k, line, path, e);
        found = true;
    }
    if (rc == 0 && !found)
        rc = err_set(e, ERR_CONFIG, "%s: contains no %s", path, what);
    erase_buffer(&text);
    return rc;
}

static int load_admins(struct keys *k, const char *path, struct err *e)
{
    return load_lines(k, path, "key", add_admin, e);
}

static int load_secrets(struct keys *k, const char *path, struct err *e)
{
    return load_lines(k, path, "secret", add_secret, e);
}

/* Makes a secret in a temporary file and links that into place. If two processes start at once, one
 * of them wins, and no half-written secret is ever read. */
static int make_secret(const char *path, struct err *e)
{
    struct ids *ids = ids_new(e);
    char text[SECRET_HEX + 2], aside[4096 + 16];
    int fd = -1, rc = -1;

    if (!ids)
        return -1;
    ids_hex(ids, text, SECRET_HEX / 2);
    text[SECRET_HEX] = '\n';
    (void)snprintf(aside, sizeof(aside), "%s.%d", path, (int)getpid());
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        err_sys(e, ERR_IO, "%s", aside);
        goto out;
    }
    if (write(fd, text, SECRET_HEX + 1) != SECRET_HEX + 1 || fsync(fd)) {
        err_sys(e, ERR_IO, "%s", aside);
        goto out;
    }
    if (link(aside, path) && errno != EEXIST) {
        err_sys(e, ERR_IO, "%s", path);
        goto out;
    }
    rc = 0;
out:
    mbedtls_platform_zeroize(text, sizeof(text));
    if (fd >= 0) {
        close(fd);
        (void)unlink(aside);
    }
    ids_free(ids);
    return rc;
}

/* The first half of a MAC over what a fingerprint is about. */
static void print_mac(const struct secret *secret, struct str text, char ret_text[KEYS_PRINT_MAX])
{
    const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
    unsigned char mac[MAC_BYTES];

    CHECK(mbedtls_md_hmac(sha256, (const unsigned char *)secret->text, secret->len,
                          (const unsigned char *)text.p, text.len, mac) == 0);
    for (size_t i = 0; i < KEYS_PRINT_MAX / 2; i++)
        (void)snprintf(ret_text + 2 * i, 3, "%02x", mac[i]);
}

int keys_load(const char *admin_file, const char *secret_file, const char *state_dir,
              struct keys **ret, struct err *e)
{
    struct keys *k = mem_zalloc(sizeof(*k));
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/key-secret", state_dir);
    if (admin_file && load_admins(k, admin_file, e))
        goto fail;
    if (!secret_file && access(path, F_OK) && make_secret(path, e))
        goto fail;
    if (load_secrets(k, secret_file ? secret_file : path, e))
        goto fail;
    for (size_t i = 0; i < k->n_secrets; i++)
        print_mac(&k->secrets[i], STR("rollgate-node-1"), k->secrets[i].node_proof);
    k->known = mem_calloc(KNOWN_MAX, sizeof(*k->known));
    *ret = k;
    return 0;
fail:
    keys_free(k);
    return -1;
}

/* Frees the keys; accepts NULL. */
void keys_free(struct keys *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->n_secrets; i++) {
        mbedtls_platform_zeroize(k->secrets[i].text, k->secrets[i].len);
        free(k->secrets[i].text);
    }
    free(k->secrets);
    free(k->admins);
    if (k->known)
        mbedtls_platform_zeroize(k->known, KNOWN_MAX * sizeof(*k->known));
    free(k->known);
    free(k);
}

void keys_check_files(const char *admin_file, const char *secret_file, struct buf *mistakes)
{
    struct keys *k = mem_zalloc(sizeof(*k));
    struct err e;

    if (admin_file && load_admins(k, admin_file, &e))
        buf_printf(mistakes, "--admin-key-file: %s\n", e.text);
    if (secret_file && load_secrets(k, secret_file, &e))
        buf_printf(mistakes, "--key-secret-file: %s\n", e.text);
    keys_free(k);
}

bool keys_print_secret(const struct keys *k, size_t i, char ret_text[KEYS_PRINT_MAX])
{
    if (i >= k->n_secrets)
        return false;
    print_mac(&k->secrets[i], STR("rollgate-fleet-1"), ret_text);
    return true;
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, MAC_BYTES);
}

void keys_print_admins(const struct keys *k, char ret_text[KEYS_PRINT_MAX])
{
    struct buf text = {0};

    (void)snprintf(ret_text, KEYS_PRINT_MAX, "none");
    if (k->n_admins == 0)
        return;
    buf_puts(&text, "rollgate-fleet-admins-1");
    buf_add(&text, k->admins, k->n_admins * sizeof(*k->admins));
    /* in one order, whatever that of the file is */
    qsort(text.p + text.len - k->n_admins * sizeof(*k->admins), k->n_admins, sizeof(*k->admins),
          compare_digests);
    print_mac(&k->secrets[0], buf_str(&text), ret_text);
    erase_buffer(&text);
}

const char *keys_node_proof(const struct keys *k)
{
    return k->secrets[0].node_proof;
}

bool keys_check_node_proof(const struct keys *k, struct str text)
{
    int good = 0;

    for (size_t i = 0; i < k->n_secrets && text.len == KEYS_PRINT_MAX - 1; i++)
        good |= mbedtls_ct_memcmp(k->secrets[i].node_proof, text.p, text.len) == 0;
    return good;
}

bool keys_required(const struct keys *k)
{
    return k->required;
}

/* Computes the MAC of the id in the scope. */
static void mac_hex(const struct secret *secret, enum key_scope scope, struct str id,
                    char ret_hex[KEY_MAC_LEN + 1])
{
    const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
    unsigned char mac[MAC_BYTES];
    char text[64 + ID_TEXT_MAX];
    int n = snprintf(text, sizeof(text), "rollgate-key-1:%s:%.*s", scope_name(scope), (int)id.len,
                     id.p);

    CHECK(n > 0 && (size_t)n < sizeof(text));
    CHECK(mbedtls_md_hmac(sha256, (const unsigned char *)secret->text, secret->len,
                          (const unsigned char *)text, (size_t)n, mac) == 0);
    *hex_write(ret_hex, mac, MAC_BYTES) = 0;
}

void keys_make(const struct keys *k, enum key_scope scope, struct str id,
               char ret_text[KEY_TEXT_MAX])
{
    char mac[KEY_MAC_LEN + 1];
    int n;

    CHECK(scope == KEY_AGENT || scope == KEY_RUNNER);
    mac_hex(&k->secrets[0], scope, id, mac);
    n = snprintf(ret_text, KEY_TEXT_MAX, "rg%c-%.*s-%s", scope == KEY_AGENT ? 'a' : 'r',
                 (int)id.len, id.p, mac);
    CHECK(n > 0 && n < KEY_TEXT_MAX);
}

bool keys_is_form(struct str text)
{
    return str_starts(text, STR("rga-")) || str_starts(text, STR("rgr-"));
}

/* Reports whether the name is valid in an executor's key, where it is between two dashes. */
static bool executor_name_fine(struct str name)
{
    return name.len > 0 && name.len <= KEY_EXECUTOR_MAX && str_has_only(name, "-.");
}

/* Writes the key of a name that is not a session id. */
static void write_named(const struct keys *k, enum key_scope scope, char letter, struct str name,
                        char ret_text[KEY_TEXT_MAX])
{
    char mac[KEY_MAC_LEN + 1];
    int n;

    mac_hex(&k->secrets[0], scope, name, mac);
    n = snprintf(ret_text, KEY_TEXT_MAX, "rg%c-%.*s-%s", letter, (int)name.len, name.p, mac);
    CHECK(n > 0 && n < KEY_TEXT_MAX);
}

int keys_make_executor(const struct keys *k, struct str name, char ret_text[KEY_TEXT_MAX],
                       struct err *e)
{
    if (!executor_name_fine(name))
        return err_field(e, "name",
                         "an executor's name has 1 to %d letters, digits, '-' or '.', not %.*s",
                         KEY_EXECUTOR_MAX, (int)MIN_OF(name.len, 60), name.p);
    write_named(k, KEY_EXECUTOR, 'x', name, ret_text);
    return 0;
}

void keys_make_service(const struct keys *k, char ret_text[KEY_TEXT_MAX])
{
    write_named(k, KEY_ADMIN, 's', STR("dispatcher"), ret_text);
}

/* Reports whether the key ends with the MAC of one of the secrets. */
static bool has_mac(const struct keys *k, enum key_scope scope, struct str name, struct str key)
{
    bool good = false;

    for (size_t i = 0; i < k->n_secrets; i++) {
        char mac[KEY_MAC_LEN + 1];

        mac_hex(&k->secrets[i], scope, name, mac);
        good |= mbedtls_ct_memcmp(mac, key.p + key.len - KEY_MAC_LEN, KEY_MAC_LEN) == 0;
    }
    return good;
}

/* Verifies an executor's or the service's key: rgx-NAME-MAC, rgs-dispatcher-MAC. */
static enum key_scope check_named_key(const struct keys *k, struct str text, struct str *ret_name)
{
    bool service = str_starts(text, STR("rgs-"));
    enum key_scope scope = service ? KEY_ADMIN : KEY_EXECUTOR;
    struct str name;

    if ((!service && !str_starts(text, STR("rgx-"))) || text.len < 4 + 1 + 1 + KEY_MAC_LEN)
        return KEY_NONE;
    name = str_sub(text, 4, text.len - 4 - KEY_MAC_LEN - 1);
    if (name.p[name.len] != '-' || !executor_name_fine(name) ||
        (service && !str_eq_c(name, "dispatcher")))
        return KEY_NONE;
    if (!has_mac(k, scope, name, text))
        return KEY_NONE;
    if (!service)
        *ret_name = name;
    return scope;
}

int keys_parse(struct str text, enum key_scope *ret_scope, struct str *ret_id, uint32_t *ret_index)
{
    struct str id;

    if (text.len < 4 + KEY_MAC_LEN + 1 || text.len >= KEY_TEXT_MAX)
        return -1;
    if (!keys_is_form(text))
        return -1;
    id = str_sub(text, 4, text.len - 4 - KEY_MAC_LEN - 1);
    if (id.p[id.len] != '-' || ids_parse(id, ret_index))
        return -1;
    *ret_scope = text.p[2] == 'a' ? KEY_AGENT : KEY_RUNNER;
    *ret_id = id;
    return 0;
}

/* Compares in constant time. A wrong text then costs the HMAC, so its time shows nothing. */
static bool is_known(const struct known *at, struct str text)
{
    return at->len == text.len && mbedtls_ct_memcmp(at->text, text.p, text.len) == 0;
}

/* Verifies a session key with each secret, and remembers a valid one. Returns KEY_NONE if no secret
 * fits. */
static enum key_scope check_session_key(const struct keys *k, struct str text, struct str *ret_id)
{
    enum key_scope scope;
    struct str id;
    uint32_t index;
    struct known *known;

    if (keys_parse(text, &scope, &id, &index))
        return KEY_NONE;
    known = &k->known[str_hash(text, 0) % KNOWN_MAX];
    if (!is_known(known, text) && !has_mac(k, scope, id, text))
        return KEY_NONE;
    memcpy(known->text, text.p, text.len);
    known->len = (unsigned char)text.len;
    *ret_id = id;
    return scope;
}

/* Checks a key of any kind and returns what it proves. */
enum key_scope keys_check(const struct keys *k, struct str text, struct str *ret_id)
{
    unsigned char digest[MAC_BYTES];
    int good = 0;

    *ret_id = (struct str){0};
    if (text.len == 0)
        return KEY_NONE;
    /* A session key that was verified before needs no digest, which is by far the most frequent
     * case. */
    if (is_known(&k->known[str_hash(text, 0) % KNOWN_MAX], text))
        return check_session_key(k, text, ret_id);
    CHECK(mbedtls_sha256_ret((const unsigned char *)text.p, text.len, digest, 0) == 0);
    for (size_t i = 0; i < k->n_admins; i++)
        good |= mbedtls_ct_memcmp(digest, k->admins[i], MAC_BYTES) == 0;
    if (good)
        return KEY_ADMIN;
    if (str_starts(text, STR("rgx-")) || str_starts(text, STR("rgs-")))
        return check_named_key(k, text, ret_id);
    return check_session_key(k, text, ret_id);
}

/* Refuses a query that contains a key of ours. Queries are written to logs, so such a key counts as
 * disclosed. Every value is hashed, not only values as long as an admin key: otherwise the time
 * would disclose that length. */
int keys_check_query(const struct keys *k, struct str query, struct err *e)
{
    struct str name, value, id;
    unsigned n = 0;

    while (query_split(&query, &name, &value)) {
        if (++n > KEYS_QUERY_MAX)
            return err_set(e, ERR_INVALID, "the query has more than %d parameters", KEYS_QUERY_MAX);
        if (keys_check(k, value, &id) != KEY_NONE)
            return err_set(e, ERR_MISSING_KEY, "a key has no place in a query");
    }
    return 0;
}

int proof_covers(const struct proof *p, struct str session, struct err *e)
{
    if (p->scope == KEY_NONE)
        return err_set(e, ERR_MISSING_KEY, "this request needs a valid key");
    if (p->scope != KEY_ADMIN && session.p && !str_eq(p->id, session))
        return err_set(e, ERR_WRONG_SCOPE, "the key belongs to another session");
    return 0;
}
