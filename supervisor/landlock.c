/* Landlock's rules for a child (landlock.h): it may read the system's and the settings' files,
 * write the state and run folders, and use nothing else. Each allow_path() opens the path and adds
 * one rule. Settings may name files that are replaced by renaming, so their folder is allowed as
 * well. */

#include "supervisor/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/proc/config.h"

/* Rights of newer kernels that the headers of Debian 12 do not have. */
#define ACCESS_REFER (1ull << 13)
#define ACCESS_TRUNCATE (1ull << 14)

enum { ABI_REFER = 2, ABI_TRUNCATE = 3 };

static const uint64_t READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t WRITE = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                              LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                              LANDLOCK_ACCESS_FS_MAKE_REG | ACCESS_REFER | ACCESS_TRUNCATE;
static const uint64_t NEVER = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                              LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                              LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
static const uint64_t OF_FILES =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE;

struct rules {
    int fd;
    uint64_t handled;
};

static long landlock_abi(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool landlock_here(void)
{
    return landlock_abi() >= ABI_REFER;
}

/* Allows a path. A path that does not exist is skipped, so a file that is made there later is not
 * allowed either. */
static void allow_path(const struct rules *r, const char *path, uint64_t rights)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = rights & r->handled};
    struct stat st;

    rule.parent_fd = path && *path ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (rule.parent_fd < 0)
        return;
    if (fstat(rule.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.allowed_access &= OF_FILES;
    (void)syscall(SYS_landlock_add_rule, r->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    (void)close(rule.parent_fd);
}

/* Allows the folder of a file or folder, which may be replaced; never the root. */
static void allow_around(const struct rules *r, struct str path, uint64_t rights)
{
    size_t n = path.len;
    char *folder;

    while (n > 1 && path.p[n - 1] == '/')
        n--;
    while (n > 0 && path.p[n - 1] != '/')
        n--;
    while (n > 1 && path.p[n - 1] == '/')
        n--;
    folder = n > 0 ? mem_strndup(path.p, n) : mem_strdup(".");
    if (n != 1)
        allow_path(r, folder, rights);
    free(folder);
    folder = mem_strndup(path.p, path.len);
    allow_path(r, folder, rights);
    free(folder);
}

static void allow_file(const struct rules *r, const char *path)
{
    if (path && *path)
        allow_around(r, str_cstr(path), READ);
}

/* Allows the files that the C library, name resolution and certificates need. */
static void allow_system(const struct rules *r)
{
    static const char *const folders[] = {"/etc",  "/usr", "/lib",        "/lib64",
                                          "/proc", "/sys", "/run/systemd"};

    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        allow_path(r, folders[i], READ);
    allow_path(r, "/dev", READ | LANDLOCK_ACCESS_FS_WRITE_FILE); /* null, urandom, stderr */
}

/* Returns the text after `mark` in a list's entry, up to `end`; absent if there is none. */
static struct str option_of(struct str entry, struct str mark, char end)
{
    size_t at = str_find(entry, mark, 0), n = 0;
    struct str rest;

    if (at == SIZE_MAX)
        return (struct str){0};
    rest = str_sub(entry, at + mark.len, SIZE_MAX);
    while (n < rest.len && rest.p[n] != end)
        n++;
    return str_sub(rest, 0, n);
}

/* Allows the folders of file sinks, and the password files of other sinks. */
static void allow_sinks(const struct rules *r, const struct config *c)
{
    for (size_t i = 0; i < c->sink.n; i++) {
        struct str entry = str_cstr(c->sink.at[i]);
        struct str password = option_of(entry, STR("password_file="), '&');

        if (str_starts(entry, STR("file:")))
            allow_around(r, str_sub(entry, 5, SIZE_MAX), READ | WRITE);
        if (password.len > 0)
            allow_around(r, password, READ);
    }
}

/* Allows the file with the engines' addresses, or the key file of the router that returns them. */
static void allow_source(const struct rules *r, const char *source)
{
    struct str all = str_cstr(source ? source : "");
    struct str key = option_of(all, STR("key-file="), ',');

    if (str_starts(all, STR("file:")))
        allow_around(r, str_sub(all, 5, SIZE_MAX), READ);
    else if (key.len > 0)
        allow_around(r, key, READ);
}

/* Allows the files and folders that the settings name. */
static void allow_settings(const struct rules *r, const struct config *c)
{
    allow_file(r, c->config_file);
    allow_file(r, c->admin_key_file);
    allow_file(r, c->key_secret_file);
    allow_file(r, c->engine_ca_file);
    allow_file(r, c->media_fetch_ca_file);
    allow_file(r, getenv("SSL_CERT_FILE"));
    allow_file(r, c->otlp_headers_file);
    allow_file(r, c->chat_template);
    allow_path(r, c->model, READ);
    allow_source(r, c->engine_source);
    for (size_t i = 0; i < c->engine.n; i++) {
        struct str key = option_of(str_cstr(c->engine.at[i]), STR("key-file="), ',');
        struct str script = option_of(str_cstr(c->engine.at[i]), STR("builtin:script:"), ',');
        struct str record = option_of(str_cstr(c->engine.at[i]), STR("builtin:recorded:"), ',');

        if (key.len > 0)
            allow_around(r, key, READ);
        if (script.len > 0)
            allow_around(r, script, READ);
        if (record.len > 0)
            allow_around(r, record, READ);
    }
}

/* Adds all rules of this child. Routers write nothing. */
static int confine_child(const struct rules *r, const struct heritage *h, struct err *e)
{
    const struct config *c = h->config;
    bool router = h->role == ROLE_ROUTER;

    allow_system(r);
    allow_settings(r, c);
    allow_path(r, h->state_dir, router ? READ : READ | WRITE);
    allow_path(r, h->run_dir, router ? READ : READ | WRITE);
    if (h->role == ROLE_WORKER)
        allow_sinks(r, c);
    if (router && c->listen_tls) {
        allow_file(r, c->tls_certificate);
        allow_file(r, c->tls_key);
        allow_file(r, c->tls_client_ca);
    }
    return syscall(SYS_landlock_restrict_self, r->fd, 0) ? err_sys(e, ERR_UNSUPPORTED, "Landlock")
                                                         : 0;
}

/* Without Landlock the rest of the sandbox still holds. */
int landlock_enter(const struct heritage *h, struct err *e)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = READ | WRITE | NEVER};
    struct rules r = {.fd = -1};
    long version = landlock_abi();
    int rc;

    if (version < ABI_REFER)
        return 0;
    if (version < ABI_TRUNCATE)
        attr.handled_access_fs &= ~ACCESS_TRUNCATE;
    r.handled = attr.handled_access_fs;
    r.fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (r.fd < 0)
        return err_sys(e, ERR_UNSUPPORTED, "Landlock");
    rc = confine_child(&r, h, e);
    (void)close(r.fd);
    return rc;
}
