/* `rollgate support DIR`: facts for support, without any text of an agent. Every file is made of
 * figures, of settings, or of log lines that log_filter.h accepts, and passes through redaction_add
 * as a whole. Journals are counted, never copied. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/journal/scan.h"
#include "common/os/file.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "common/proc/gateway_client.h"
#include "common/proc/log_filter.h"
#include "common/proc/redaction.h"
#include "supervisor/commands.h"
#include "supervisor/local_address.h"

/* --- archive: a new folder, or one tar file if the name ends with ".tar" --- */

/* Only their owner can read the files. The tar file is POSIX ustar: each file has a header of 512
 * bytes and is padded to a multiple of 512. Two empty blocks end the archive. */

struct support_archive {
    const char *path; /* borrowed */
    bool tar;
    int fd; /* descriptor of the folder or of the tar file */
};

enum { BLOCK = 512, AT_MODE = 100, AT_SIZE = 124, AT_MTIME = 136, AT_SUM = 148, AT_TYPE = 156 };

/* Makes the folder or file, which must not exist. */
static int support_archive_open(struct support_archive *a, const char *path, struct err *e)
{
    size_t n = strlen(path);

    *a = (struct support_archive){.path = path, .fd = -1};
    a->tar = n > 4 && strcmp(path + n - 4, ".tar") == 0;
    if (a->tar)
        a->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    else if (mkdir(path, 0700) == 0)
        a->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return a->fd < 0 ? err_sys(e, ERR_IO, "cannot make %s", path) : 0;
}

/* Writes one file. Its header has texts, then octal numbers, then the sum of all bytes. */
static int add_to_tar(int fd, const char *name, struct str bytes)
{
    static const char zeros[BLOCK];
    char head[BLOCK] = "";
    unsigned sum = 0;

    (void)snprintf(head, AT_MODE, "rollgate-support/%s", name);
    (void)snprintf(head + AT_MODE, 8, "0000600");
    (void)snprintf(head + 108, 8, "0000000"); /* user and group are root */
    (void)snprintf(head + 116, 8, "0000000");
    (void)snprintf(head + AT_SIZE, 12, "%011llo", (unsigned long long)bytes.len);
    (void)snprintf(head + AT_MTIME, 12, "%011llo", (unsigned long long)time(NULL));
    memset(head + AT_SUM, ' ', 8);
    head[AT_TYPE] = '0';
    memcpy(head + 257,
           "ustar\0"
           "00",
           8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)head[i];
    (void)snprintf(head + AT_SUM, 7, "%06o", sum);
    if (file_write_all(fd, str_of(head, BLOCK)) || file_write_all(fd, bytes))
        return -1;
    return file_write_all(fd, str_of(zeros, (BLOCK - bytes.len % BLOCK) % BLOCK));
}

static int add_to_folder(int folder, const char *name, struct str bytes)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc;

    if (fd < 0)
        return -1;
    rc = file_write_all(fd, bytes);
    return close(fd) || rc ? -1 : 0;
}

/* Adds a file. `name` has at most 90 bytes and no slash. */
static int support_archive_add(struct support_archive *a, const char *name, struct str bytes,
                               struct err *e)
{
    if (a->tar ? add_to_tar(a->fd, name, bytes) : add_to_folder(a->fd, name, bytes))
        return err_sys(e, ERR_IO, "cannot write %s of %s", name, a->path);
    return 0;
}

/* Writes the end of the archive and closes it. */
static int support_archive_close(struct support_archive *a, struct err *e)
{
    static const char end[2 * BLOCK];
    int rc = a->tar ? file_write_all(a->fd, str_of(end, sizeof(end))) : 0;

    if (close(a->fd) || rc)
        return err_sys(e, ERR_IO, "cannot write %s", a->path);
    return 0;
}

/* --- command --- */

enum { LOG_BYTES_MAX = 32 << 20, ANSWER_SHOWN = 300 };

struct support_bundle {
    const struct config *config;
    const char *log_path; /* NULL: the log comes from journald, if the unit runs under systemd */
    const char *unit;
    struct support_archive archive;
    struct buf left_out; /* lines about files that are missing */
};

/* Adds a file, without the secrets in its text. */
static int add_file(struct support_bundle *s, const char *name, struct str text, struct err *e)
{
    struct buf safe = {0};
    int rc;

    redaction_add(text, &safe);
    rc = support_archive_add(&s->archive, name, buf_str(&safe), e);
    buf_done(&safe);
    return rc;
}

static int add_versions(struct support_bundle *s, struct err *e)
{
    struct utsname u = {0};
    struct buf out = {0};
    FILE *f = fopen("/etc/os-release", "re");
    char line[256];
    int rc;

    (void)uname(&u);
    buf_printf(&out, "rollgate %s\nkernel %s %s\nprocessors %ld\nmemory_bytes %lld\n", RG_VERSION,
               u.release, u.machine, sysconf(_SC_NPROCESSORS_ONLN),
               (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    while (f && fgets(line, sizeof(line), f)) {
        if (strncmp(line, "PRETTY_NAME=", 12) == 0)
            buf_printf(&out, "system %s", line + 12);
    }
    if (f)
        (void)fclose(f);
    rc = add_file(s, "versions.txt", buf_str(&out), e);
    buf_done(&out);
    return rc;
}

static int add_settings(struct support_bundle *s, struct err *e)
{
    struct buf out = {0};
    int rc;

    config_dump(s->config, &out);
    rc = add_file(s, "settings.yaml", buf_str(&out), e);
    buf_done(&out);
    return rc;
}

/* Copies metrics without names that trainers chose: of runners and queues. */
static void add_metrics(struct str page, struct buf *out)
{
    static const char *const labels[] = {"runner=\"", "queue=\""};

    for (size_t i = 0; i < page.len;) {
        struct str rest = str_sub(page, i, page.len - i);
        size_t n = 0;

        for (size_t k = 0; k < ARRAY_LEN(labels); k++) {
            if (str_starts(rest, str_cstr(labels[k])))
                n = strlen(labels[k]);
        }
        buf_add_str(out, str_sub(rest, 0, MAX_OF(n, (size_t)1)));
        i += MAX_OF(n, (size_t)1);
        if (n) {
            buf_puts(out, "(removed)");
            while (i < page.len && page.p[i] != '"' && page.p[i] != '\n')
                i += page.p[i] == '\\' ? 2 : 1;
        }
    }
}

/* Adds the gateway's answers about itself. */
static int add_answers(struct support_bundle *s, struct err *e)
{
    static const char *const all[][2] = {{"/metrics", "metrics.txt"},
                                         {"/health", "health.json"},
                                         {"/admin/engines", "engines.json"}};
    struct gateway_client_options o = {.key_file = s->config->admin_key_file};
    struct buf url = {0}, answer = {0};
    struct gateway_client *c;
    int rc = 0;

    local_address_use(s->config, &o, &url);
    c = gateway_client_new(&o, &s->left_out);
    for (size_t i = 0; c && rc == 0 && i < ARRAY_LEN(all); i++) {
        int status = gateway_client_call(c, "GET", all[i][0], (struct str){0}, &answer);

        if (status == 200) {
            struct buf text = {0};

            add_metrics(buf_str(&answer), &text);
            rc = add_file(s, all[i][1], buf_str(&text), e);
            buf_done(&text);
        } else if (status == 0) {
            buf_printf(&s->left_out, "%s: %.*s\n", all[i][1],
                       (int)MIN_OF(answer.len, (size_t)ANSWER_SHOWN), answer.p);
        } else {
            buf_printf(&s->left_out, "%s: the gateway at %s answered with status %d\n", all[i][1],
                       s->config->listen, status);
        }
    }
    gateway_client_free(c);
    buf_done(&url);
    buf_done(&answer);
    return rc;
}

/* --- journals --- */

struct support_tally {
    unsigned long long records, bytes, torn, damaged;
};

static void count_record(void *ctx, const struct scan_record *r)
{
    struct support_tally *t = ctx;

    t->records++;
    t->bytes += r->payload.len;
}

static void count_damage(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    struct support_tally *t = ctx;

    (void)segment, (void)offset, (void)bytes;
    t->torn += last;
    t->damaged += !last;
}

/* Closes a folder, and lists it as left out if it was not read to its end. */
static void end_folder(struct support_bundle *s, DIR *d, const char *path)
{
    if (file_end_entries(d, path))
        buf_printf(&s->left_out, "journals.txt: %s: %s\n", path, strerror(errno));
}

/* Counts the files in a folder and their bytes. */
static void measure_folder(struct support_bundle *s, const char *path, unsigned long long *files,
                           unsigned long long *bytes)
{
    DIR *d = opendir(path);
    const struct dirent *entry;
    struct stat st;

    *files = *bytes = 0;
    while (d && (entry = file_next_entry(d))) {
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        ++*files;
        *bytes += (unsigned long long)st.st_size;
    }
    end_folder(s, d, path);
}

static void add_journal(struct support_bundle *s, const char *name, struct buf *out)
{
    static const struct scan_events events = {.record = count_record, .damage = count_damage};
    const char *state_dir = s->config->state_dir;
    struct support_tally t = {0};
    unsigned long long files, bytes;
    struct buf path = {0};
    struct err e;

    buf_printf(&path, "%s/%s%c", state_dir, name, 0);
    measure_folder(s, path.p, &files, &bytes);
    buf_printf(out, "%s: %llu files, %llu bytes", name, files, bytes);
    if (scan_journal(path.p, &events, &t, &e))
        buf_printf(out, "; not readable as a journal\n");
    else
        buf_printf(out, "; %llu records of %llu bytes, %llu torn, %llu damaged\n", t.records,
                   t.bytes, t.torn, t.damaged);
    path.len = 0;
    buf_printf(&path, "%s/%s/spool%c", state_dir, name, 0);
    measure_folder(s, path.p, &files, &bytes);
    if (files)
        buf_printf(out, "%s/spool: %llu files, %llu bytes\n", name, files, bytes);
    buf_done(&path);
}

/* Adds the sizes of the journals of worker-N and dispatcher, in the order of the folder. */
static int add_journals(struct support_bundle *s, struct err *e)
{
    DIR *d = opendir(s->config->state_dir);
    const struct dirent *entry;
    struct buf out = {0};
    int rc;

    while (d && (entry = file_next_entry(d))) {
        unsigned index;
        char end;

        if (strcmp(entry->d_name, "dispatcher") == 0 ||
            sscanf(entry->d_name, "worker-%u%c", &index, &end) == 1) /* NOLINT */
            add_journal(s, entry->d_name, &out);
    }
    if (d)
        end_folder(s, d, s->config->state_dir);
    else
        buf_printf(&s->left_out, "journals.txt: %s: %s\n", s->config->state_dir, strerror(errno));
    rc = add_file(s, "journals.txt", buf_str(&out), e);
    buf_done(&out);
    return rc;
}

/* --- the log --- */

/* Starts journalctl for the unit; its output is read from the returned stream. NULL: systemd does
 * not run. */
static FILE *open_journald(const struct support_bundle *s)
{
    struct buf command = {0};
    FILE *f = NULL;

    if (access("/run/systemd/system", F_OK) == 0 &&
        strspn(s->unit, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@._-") ==
            strlen(s->unit)) {
        buf_printf(&command, "journalctl --no-pager -o cat -n 100000 -u '%s' 2>/dev/null%c",
                   s->unit, 0);
        f = popen(command.p, "re"); /* NOLINT: the unit's name holds nothing that a shell reads */
    }
    buf_done(&command);
    return f;
}

/* Opens the log. Of a long log the end is read. */
static FILE *open_log(const struct support_bundle *s)
{
    FILE *f = fopen(s->log_path, "re");
    long size;

    if (f && fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > LOG_BYTES_MAX)
        (void)fseek(f, size - LOG_BYTES_MAX, SEEK_SET);
    else if (f)
        rewind(f);
    return f;
}

static int add_log(struct support_bundle *s, struct err *e)
{
    FILE *f = s->log_path ? open_log(s) : open_journald(s);
    unsigned long long kept = 0, removed = 0;
    struct buf out = {0};
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int rc = 0;

    if (!f) {
        buf_printf(&s->left_out, "log.jsonl: %s\n",
                   s->log_path ? strerror(errno) : "name the log: --log FILE");
        return 0;
    }
    while ((n = getline(&line, &room, f)) > 0) {
        struct str text = str_of(line, (size_t)n - (line[n - 1] == '\n'));

        if (log_filter_add(text, &out))
            kept++;
        else
            removed++;
    }
    if (file_check_end(f, s->log_path ? s->log_path : "journalctl's output", e))
        buf_printf(&s->left_out, "log.jsonl: its rest: %s\n", e->text);
    free(line);
    (void)(s->log_path ? fclose(f) : pclose(f));
    if (removed)
        buf_printf(&s->left_out, "log.jsonl: %llu lines that are not of the gateway's log\n",
                   removed);
    rc = support_archive_add(&s->archive, "log.jsonl", buf_str(&out), e);
    buf_done(&out);
    return rc;
}

static int pack_files(struct support_bundle *s, const char *path, struct err *e)
{
    if (support_archive_open(&s->archive, path, e))
        return -1;
    if (add_versions(s, e) || add_settings(s, e) || add_answers(s, e) || add_journals(s, e) ||
        add_log(s, e) || add_file(s, "left-out.txt", buf_str(&s->left_out), e)) {
        close(s->archive.fd);
        return -1;
    }
    return support_archive_close(&s->archive, e);
}

int support_command(int argc, char **argv)
{
    struct support_bundle s = {.log_path = command_line_take_value(&argc, argv, "--log", NULL),
                               .unit = command_line_take_value(&argc, argv, "--unit", "rollgate")};
    struct config *c = commands_load_words(argc, argv, COMMANDS_SYNTAX);
    struct err e;
    int rc = 2;

    if (!c)
        return 2;
    s.config = c;
    if (c->args.n != 1) {
        fprintf(stderr, "usage: rollgate support DIR|FILE.tar [--log FILE] [settings]\n");
    } else if (pack_files(&s, c->args.at[0], &e)) {
        fprintf(stderr, "rollgate support: %s\n", e.text);
        rc = 1;
    } else {
        printf("%s\n%.*s", c->args.at[0], (int)s.left_out.len, s.left_out.p ? s.left_out.p : "");
        rc = 0;
    }
    buf_done(&s.left_out);
    config_free(c);
    return rc;
}
