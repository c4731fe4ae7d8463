/* Landlock's rules for a child (landlock.h): it may read the system's and the settings' files,
 * write the state and run folders, and use nothing else. Each allow_path() opens the path and adds
 * one rule. Settings may name files that are replaced by renaming, so their folder is allowed as
 * well. Links on the way to a file may be replaced, too: certbot's lead to a new file, Kubernetes'
 * to a new folder next to the old one. So the folders of such targets are allowed, unless they
 * are shared with others (is_common). */

#include "supervisor/landlock.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

enum { LINKS_MAX = 40 }; /* the kernel's own limit */

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

/* Returns the folder that the path lies in, without a slash at its end; "" is the root. */
static char *parent_of(struct str path)
{
    size_t n = path.len;

    while (n > 1 && path.p[n - 1] == '/')
        n--;
    while (n > 0 && path.p[n - 1] != '/')
        n--;
    if (n == 0)
        return mem_strdup(".");
    while (n > 0 && path.p[n - 1] == '/')
        n--;
    return mem_strndup(path.p, n);
}

/* Returns the folder that the path lies in, without links; NULL: there is no such folder. */
static char *real_parent_of(struct str path)
{
    char *folder = parent_of(path), *real = realpath(*folder ? folder : "/", NULL);

    free(folder);
    return real;
}

/* Allows a file or folder, and the folder that it lies in, for it may be replaced; never the root.
 */
static void allow_around(const struct rules *r, struct str path, uint64_t rights)
{
    char *folder = real_parent_of(path), *itself = mem_strndup(path.p, path.len);

    if (folder && strcmp(folder, "/") != 0)
        allow_path(r, folder, rights);
    allow_path(r, itself, rights);
    free(folder);
    free(itself);
}

/* Reports whether the folder contains much that does not belong to the settings: a folder of the
 * root, or one of those in which users and programs have their own folders. */
static bool is_common(const char *folder)
{
    static const char *const all[] = {"/var/lib", "/var/tmp", "/var/run", "/usr/local"};
    const char *home = getenv("HOME"), *name = strchr(folder + 1, '/');

    if (!name || (home && strcmp(folder, home) == 0))
        return true;
    if (str_starts(str_cstr(folder), STR("/home/")) && !strchr(name + 1, '/'))
        return true;
    return str_is_one_of(str_cstr(folder), all, ARRAY_LEN(all));
}

static void allow_parent(const struct rules *r, const char *path)
{
    char *folder = real_parent_of(str_cstr(path));

    if (folder && !is_common(folder))
        allow_path(r, folder, READ);
    free(folder);
}

/* Returns where the first component that is a link ends in the path, and the link's target; 0 if
 * there is no such component. */
static size_t find_link(const char *path, char target[static PATH_MAX])
{
    char prefix[PATH_MAX];
    size_t n = strlen(path);

    for (size_t i = 1; i <= n; i++) {
        ssize_t len;

        if ((path[i] != '/' && path[i] != 0) || path[i - 1] == '/')
            continue;
        memcpy(prefix, path, i);
        prefix[i] = 0;
        len = readlink(prefix, target, PATH_MAX - 1);
        if (len > 0) {
            target[len] = 0;
            return i;
        }
    }
    return 0;
}

/* Replaces the link, which ends at `end` of the path, by its target. Returns the length of the new
 * path's part up to the target's end; 0 if that is too long. */
static size_t follow_link(char path[static PATH_MAX], size_t end, const char *target)
{
    char whole[2 * PATH_MAX + 1];
    size_t folder = end, n;

    while (folder > 0 && path[folder - 1] != '/')
        folder--;
    if (target[0] == '/')
        folder = 0;
    n = (size_t)snprintf(whole, sizeof(whole), "%.*s%s", (int)folder, path, target);
    (void)snprintf(whole + n, sizeof(whole) - n, "%s", path + end);
    if (strlen(whole) >= PATH_MAX)
        return 0;
    memcpy(path, whole, strlen(whole) + 1);
    return n;
}

/* Allows the folder of each link's target on the way to the file: a later link may lead to a file
 * or folder next to it. Following a link needs no right. */
static void allow_links(const struct rules *r, struct str file)
{
    char path[PATH_MAX], target[PATH_MAX], reached[PATH_MAX];
    size_t end, n = 1;

    if (file.len == 0 || file.len >= PATH_MAX)
        return;
    memcpy(path, file.p, file.len);
    path[file.len] = 0;
    for (unsigned i = 0; i < LINKS_MAX && n > 0 && (end = find_link(path, target)) > 0; i++) {
        n = follow_link(path, end, target);
        memcpy(reached, path, n);
        reached[n] = 0;
        if (n > 0)
            allow_parent(r, reached);
    }
}

static void allow_readable(const struct rules *r, struct str path)
{
    allow_around(r, path, READ);
    allow_links(r, path);
}

static void allow_file(const struct rules *r, const char *path)
{
    if (path && *path)
        allow_readable(r, str_cstr(path));
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
            allow_readable(r, password);
    }
}

/* Allows the password file of the fleet's store. */
static void allow_store(const struct rules *r, const struct config *c)
{
    struct str password = option_of(str_cstr(c->fleet ? c->fleet : ""), STR("password_file="), '&');

    if (password.len > 0)
        allow_readable(r, password);
}

/* Allows the file with the engines' addresses, or the key file of the router that returns them. */
static void allow_source(const struct rules *r, const char *source)
{
    struct str all = str_cstr(source ? source : "");
    struct str key = option_of(all, STR("key-file="), ',');

    if (str_starts(all, STR("file:")))
        allow_readable(r, str_sub(all, 5, SIZE_MAX));
    else if (key.len > 0)
        allow_readable(r, key);
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
            allow_readable(r, key);
        if (script.len > 0)
            allow_readable(r, script);
        if (record.len > 0)
            allow_readable(r, record);
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
    if (!router)
        allow_store(r, c);
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
