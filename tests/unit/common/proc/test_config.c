#include "common/proc/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "testing.h"

static struct config *load(struct buf *mistakes, char *const *argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    buf_clear(mistakes);
    return config_load(argc, argv, mistakes);
}

#define LOAD(mistakes, ...) load(mistakes, (char *const[]){(char[]){"serve"}, __VA_ARGS__, NULL})
#define ARG(s) ((char[]){s})

static bool says(const struct buf *b, const char *text)
{
    return str_find(buf_str(b), str_cstr(text), 0) != SIZE_MAX;
}

static void write_file(char *path, const char *text)
{
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

TEST(config, later_sources_win)
{
    char path[] = "/tmp/rg-config-XXXXXX";
    struct buf m = {0};
    struct config *c;

    write_file(path,
               "workers: 3\ngrace: 7s\nmax_body_bytes: 1MiB\nsink: [\"file:/a\", \"file:/b\"]\n"
               "peer:\n  - 4-7=h:1\nhistory: linear\n");
    setenv("ROLLGATE_GRACE", "8s", 1);
    setenv("ROLLGATE_SINK", "file:/env", 1);
    c = LOAD(&m, ARG("--config"), path, ARG("--workers=5"), ARG("--reseed=off"),
             ARG("--sandbox=off"), ARG("operand"), ARG("--engine"), ARG("builtin:echo"),
             ARG("--engine=builtin:random:1"));
    cr_assert_not_null(c, "%.*s", (int)m.len, m.p);
    cr_assert_eq(c->workers, 5);
    cr_assert_eq(c->routers, 2);
    cr_assert_eq(c->grace_ms, 8000);
    cr_assert_eq(c->max_body_bytes, 1 << 20);
    cr_assert_eq(c->sink.n, 1);
    cr_assert_str_eq(c->sink.at[0], "file:/env");
    cr_assert_eq(c->peer.n, 1);
    cr_assert_eq(c->history, HISTORY_LINEAR);
    cr_assert_eq(c->reseed, RESEED_OFF);
    cr_assert_eq(c->sandbox, false);
    cr_assert_eq(c->engine.n, 2);
    cr_assert_eq(c->args.n, 1);
    config_free(c);
    unlink(path);
    buf_done(&m);
}

TEST(config, all_mistakes_come_in_one_run_with_their_places)
{
    char path[] = "/tmp/rg-config-XXXXXX", place[96];
    struct buf m = {0};

    write_file(path, "workers: many\nworker: 3\ngrace: [1, 2]\n\nlog-format: xml\nmodel: {a: b}\n");
    setenv("ROLLGATE_MAX_NODES", "0", 1);
    setenv("ROLLGATE_BIN", "/somewhere", 1);
    cr_assert_null(LOAD(&m, ARG("--config"), path, ARG("--keepalive=soon"), ARG("--durabilty=none"),
                        ARG("--routers")));
    (void)snprintf(place, sizeof(place), "%s:1: workers: \"many\" is not", path);
    cr_assert(says(&m, place), "%.*s", (int)m.len, m.p);
    (void)snprintf(place, sizeof(place), "%s:2: unknown setting \"worker\"; did you", path);
    cr_assert(says(&m, place));
    (void)snprintf(place, sizeof(place), "%s:3: grace: needs one value, not a list", path);
    cr_assert(says(&m, place));
    (void)snprintf(place, sizeof(place), "%s:5: log-format: \"xml\" is not one of text, json",
                   path);
    cr_assert(says(&m, place));
    (void)snprintf(place, sizeof(place), "%s:6: settings are not nested", path);
    cr_assert(says(&m, place));
    cr_assert(says(&m, "ROLLGATE_MAX_NODES: must be between 1 and"));
    cr_assert(says(&m, "--keepalive: \"soon\" is not a duration"));
    cr_assert(says(&m, "did you mean \"durability\""));
    cr_assert(says(&m, "--routers: needs a value"));
    cr_assert_not(says(&m, "ROLLGATE_BIN"));
    unlink(path);
    buf_done(&m);
}

TEST(config, a_broken_file_is_told_with_its_line)
{
    char path[] = "/tmp/rg-config-XXXXXX", place[96];
    struct buf m = {0};

    write_file(path, "workers: 1\ngrace: \"7s\n");
    cr_assert_null(LOAD(&m, ARG("--config"), path));
    (void)snprintf(place, sizeof(place), "%s:3: ", path);
    cr_assert(says(&m, place), "%.*s", (int)m.len, m.p);
    unlink(path);
    cr_assert_null(LOAD(&m, ARG("--config=/does/not/exist")));
    cr_assert(says(&m, "/does/not/exist: No such file"));
    buf_done(&m);
}

TEST(config, a_dump_loads_to_the_same_settings)
{
    char path[] = "/tmp/rg-config-XXXXXX";
    struct buf m = {0}, first = {0}, second = {0}, names = {0};
    struct config *a, *b;

    a = LOAD(&m, ARG("--workers=3"), ARG("--engine=sglang:http://h:1"), ARG("--grace=1500ms"),
             ARG("--model=/m \"x\""), ARG("--session-ttl=2h"), ARG("--listen=:9"));
    cr_assert_not_null(a);
    config_dump(a, &first);
    buf_add_c(&first, 0);
    write_file(path, first.p);
    first.len--;
    b = LOAD(&m, ARG("--config"), path);
    cr_assert_not_null(b, "%.*s", (int)m.len, m.p);
    config_dump(b, &second);
    cr_assert(str_eq(buf_str(&first), buf_str(&second)));
    config_unreloadable(a, b, &names);
    cr_assert_eq(names.len, 0);
    config_free(b);
    buf_clear(&names);
    b = LOAD(&m, ARG("--workers=4"), ARG("--model=/other"), ARG("--listen=:9"),
             ARG("--engine=sglang:http://h:1"));
    config_unreloadable(a, b, &names);
    cr_assert(str_eq_c(buf_str(&names), "model"));
    config_free(a);
    config_free(b);
    unlink(path);
    buf_done(&m);
    buf_done(&first);
    buf_done(&second);
    buf_done(&names);
}

TEST(config, units)
{
    int64_t v;

    cr_assert_eq(config_parse_duration(STR("1.5s"), &v), 0);
    cr_assert_eq(v, 1500);
    cr_assert_eq(config_parse_duration(STR("2h"), &v), 0);
    cr_assert_eq(v, 7200000);
    cr_assert_eq(config_parse_duration(STR("90"), &v), 0);
    cr_assert_eq(v, 90000);
    cr_assert_eq(config_parse_size(STR("64KiB"), &v), 0);
    cr_assert_eq(v, 65536);
    cr_assert_eq(config_parse_size(STR("2g"), &v), 0);
    cr_assert_eq(v, 2147483648);
    cr_assert_eq(config_parse_size(STR("-1"), &v), -1);
    cr_assert_eq(config_parse_duration(STR("1 parsec"), &v), -1);
    cr_assert_eq(config_parse_duration(STR(""), &v), -1);
    cr_assert_eq(config_parse_duration(STR("99999999999999999999d"), &v), -1);
}

TEST(config, texts_name_every_setting)
{
    struct buf docs = {0}, manual = {0};

    config_docs(&docs);
    config_manual(&manual);
#define X(type, field, flag, deflt, min, max, set, reload, text) \
    cr_assert(says(&docs, "\n#" flag ": ") || !strcmp(flag, "config"), flag);
#include "common/proc/config.def"
    cr_assert(says(&manual, ".BI \\-\\-worker\\-base"));
    buf_done(&docs);
    buf_done(&manual);
}

TEST(config, every_path_is_absolute)
{
    char path[] = "/tmp/rg-config-XXXXXX", here[4096], want[4200];
    struct buf m = {0};
    struct config *c;

    cr_assert_not_null(getcwd(here, sizeof(here)));
    write_file(path, "state-dir: ./st\nmodel: models/m\nengine-source: file:engines\n"
                     "sink: [\"file:out\", \"redis:unix:r.sock?stream=s\", "
                     "\"redis://h?password_file=p&user=u\", \"file\"]\n");
    setenv("ROLLGATE_ADMIN_KEY_FILE", "keys", 1);
    c = LOAD(&m, ARG("--config"), path, ARG("--chat-template=/x/../t"),
             ARG("--engine=vllm:http://h:1,key-file=k,weight=2"), ARG("--upstream=unix:u.sock"),
             ARG("--engine=builtin:script:.//s"), ARG("--scorer=r=vllm:http://h:1,key-file=k"));
    unsetenv("ROLLGATE_ADMIN_KEY_FILE");
    cr_assert_not_null(c, "%.*s", (int)m.len, m.p);
#define EXPECT_PATH(got, before, name, after)                                       \
    do {                                                                            \
        (void)snprintf(want, sizeof(want), "%s%s/%s%s", before, here, name, after); \
        cr_expect_str_eq(got, want);                                                \
    } while (0)
    EXPECT_PATH(c->state_dir, "", "st", "");
    EXPECT_PATH(c->run_dir, "", "st/run", "");
    EXPECT_PATH(c->model, "", "models/m", "");
    EXPECT_PATH(c->admin_key_file, "", "keys", "");
    EXPECT_PATH(c->engine_source, "file:", "engines", "");
    EXPECT_PATH(c->engine.at[0], "vllm:http://h:1,key-file=", "k", ",weight=2");
    EXPECT_PATH(c->engine.at[1], "builtin:script:", "s", "");
    EXPECT_PATH(c->scorer.at[0], "r=vllm:http://h:1,key-file=", "k", "");
    EXPECT_PATH(c->upstream.at[0], "unix:", "u.sock", "");
    EXPECT_PATH(c->sink.at[0], "file:", "out", "");
    EXPECT_PATH(c->sink.at[1], "redis:unix:", "r.sock", "?stream=s");
    EXPECT_PATH(c->sink.at[2], "redis://h?password_file=", "p", "&user=u");
    cr_expect_str_eq(c->sink.at[3], "file");
    cr_expect_str_eq(c->chat_template, "/x/../t");
    cr_expect_str_eq(c->config_file, path);
    config_free(c);
    unlink(path);
    buf_done(&m);
}

TEST(config, paths_that_only_a_shell_reads_are_mistakes)
{
    struct buf m = {0};

    cr_expect_null(LOAD(&m, ARG("--state-dir=~/rollgate"), ARG("--sink=file:$HOME/out"),
                        ARG("--model=~root/m")));
    cr_expect(says(&m, "--state-dir: \"~/rollgate\" begins with '~'"), "%.*s", (int)m.len, m.p);
    cr_expect(says(&m, "--sink: \"$HOME/out\" begins with '$'"), "%.*s", (int)m.len, m.p);
    cr_expect(says(&m, "--model: \"~root/m\" begins with '~'"), "%.*s", (int)m.len, m.p);
    buf_done(&m);
}
