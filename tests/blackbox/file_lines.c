/* Reads and writes lines of JSON (file_lines.h). */
#include "file_lines.h"

#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/codec/json.h"

struct file_entry *file_find_entry(struct file_store *s, struct str key)
{
    struct file_entry *entry = map_get(&s->entries, key);

    if (!entry) {
        entry = ARENA_NEW(&s->arena, struct file_entry);
        entry->e.key = arena_str(&s->arena, key);
        entry->e.owner = entry->e.value = STR("");
        map_set(&s->entries, entry->e.key, entry);
    }
    return entry;
}

struct file_log *file_find_log(struct file_store *s, uint32_t place, struct str session)
{
    struct str name =
        arena_printf(&s->arena, "%u/%.*s", (unsigned)place, (int)session.len, session.p);
    struct file_log *log = map_get(&s->logs, name);

    if (!log) {
        log = ARENA_NEW(&s->arena, struct file_log);
        log->name = name;
        map_set(&s->logs, name, log);
    }
    return log;
}

static uint64_t number(const struct json *v, const char *key)
{
    uint64_t n = 0;

    (void)str_to_u64(json_text(json_get(v, key)), UINT64_MAX, &n);
    return n;
}

static void replay_entry(struct file_store *s, const struct json *v)
{
    struct file_entry *entry = file_find_entry(s, json_string(json_get(v, "key")));

    entry->e.owner = arena_str(&s->arena, json_string(json_get(v, "owner")));
    entry->e.value = arena_str(&s->arena, json_string(json_get(v, "value")));
    entry->e.epoch = number(v, "epoch");
    entry->e.beat = number(v, "beat");
    entry->base = number(v, "base");
    entry->e.before = number(v, "before");
    entry->e.since = number(v, "since");
    entry->server = number(v, "server");
    entry->told = number(v, "told");
    entry->replicated = json_is_true(json_get(v, "replicated"));
    entry->e.doubt_ms = number(v, "doubt");
    entry->e.version = number(v, "version");
    entry->e.edition = number(v, "edition");
    entry->e.whole = json_is_true(json_get(v, "whole"));
    entry->e.vacant = json_is_true(json_get(v, "vacant"));
    entry->e.taken = json_is_true(json_get(v, "taken"));
    entry->changed = entry->changed || json_is_true(json_get(v, "changed"));
}

static void replay_log(struct file_store *s, const struct json *v)
{
    struct str name = json_string(json_get(v, "log"));
    size_t slash = str_find(name, STR("/"), 0);
    const struct json *records = json_get(v, "records");
    uint64_t place = 0;
    struct file_log *log;

    CHECK(str_to_u64(str_sub(name, 0, slash), UINT32_MAX, &place) == 0);
    log = file_find_log(s, (uint32_t)place, str_sub(name, slash + 1, SIZE_MAX));
    log->first = number(v, "first");
    log->complete = json_is_true(json_get(v, "complete"));
    vec_clear(&log->records);
    for (size_t i = 0; i < records->n; i++)
        *vec_push(&log->records) = arena_str(&s->arena, json_string(json_at(records, i)));
}

/* Locks the file and replays the effects of other processes. */
void file_begin_call(struct file_store *s)
{
    struct buf text = {0};
    ssize_t n;

    CHECK(flock(s->fd, LOCK_EX) == 0);
    while ((n = pread(s->fd, buf_reserve(&text, READ_BYTES), READ_BYTES,
                      (off_t)(s->at + text.len))) > 0)
        text.len += (size_t)n;
    for (struct str rest = buf_str(&text); rest.len > 0;) {
        size_t end = str_find(rest, STR("\n"), 0);
        const struct json *v = NULL;
        struct arena a = {0};
        struct err e;

        CHECK(json_parse(&a, str_sub(rest, 0, end), &v, &e) == 0);
        if (json_get(v, "log"))
            replay_log(s, v);
        else
            replay_entry(s, v);
        arena_done(&a);
        rest = str_sub(rest, end + 1, SIZE_MAX);
    }
    s->at += text.len;
    buf_done(&text);
    (void)sscanf(arena_cstr(&s->arena, file_find_entry(s, STR("server"))->e.value),
                 "%llu %llu %llu", &s->server[0], &s->server[1], &s->server[2]);
}

static void write_line(struct file_store *s, struct buf *line)
{
    buf_add_c(line, '\n');
    CHECK(pwrite(s->fd, line->p, line->len, (off_t)s->at) == (ssize_t)line->len);
    s->at += line->len;
    buf_done(line);
}

static void put_number(struct json_out *o, const char *key, uint64_t value)
{
    json_out_key(o, key);
    json_out_i64(o, (int64_t)value);
}

void file_write_entry(struct file_store *s, struct file_entry *entry, bool changed)
{
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    json_out_member_str(&o, "key", entry->e.key);
    json_out_member_str(&o, "owner", entry->e.owner);
    json_out_member_str(&o, "value", entry->e.value);
    put_number(&o, "epoch", entry->e.epoch);
    put_number(&o, "beat", entry->e.beat);
    put_number(&o, "base", entry->base);
    put_number(&o, "before", entry->e.before);
    put_number(&o, "since", entry->e.since);
    put_number(&o, "server", entry->server);
    put_number(&o, "told", entry->told);
    put_number(&o, "doubt", entry->e.doubt_ms);
    json_out_member_bool(&o, "replicated", entry->replicated);
    put_number(&o, "version", entry->e.version);
    put_number(&o, "edition", entry->e.edition);
    json_out_member_bool(&o, "whole", entry->e.whole);
    json_out_member_bool(&o, "vacant", entry->e.vacant);
    json_out_member_bool(&o, "taken", entry->e.taken);
    json_out_member_bool(&o, "changed", changed);
    json_out_end_obj(&o);
    write_line(s, &line);
    entry->changed = entry->changed || changed;
}

void file_write_log(struct file_store *s, const struct file_log *log)
{
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    json_out_member_str(&o, "log", log->name);
    put_number(&o, "first", log->first);
    json_out_member_bool(&o, "complete", log->complete);
    json_out_key(&o, "records");
    json_out_arr(&o);
    for (size_t i = 0; i < log->records.n; i++)
        json_out_str(&o, log->records.at[i]);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    write_line(s, &line);
}
