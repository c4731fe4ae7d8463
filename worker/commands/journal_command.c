/* `rollgate journal verify|dump|compact`: looks at a journal's folder without a gateway. verify
 * and dump scan its segments and change nothing; compact opens it as a worker does (no worker
 * may have it open) and rewrites what is still needed. */

#include "worker/commands/journal_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/journal/journal.h"
#include "common/journal/scan.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "worker/commands/replayed.h"
#include "worker/ledger/loose_parts.h"
#include "worker/session/session.h"

struct journal_tally {
    const char *dir;
    bool print;
    uint64_t records, bytes, notes, damaged, torn;
};

/* Counts the record; dump prints one line of JSON for it. */
static void on_record(void *ctx, const struct scan_record *r)
{
    struct journal_tally *v = ctx;
    bool note = str_eq_c(r->id, JOURNAL_NOTE);
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    v->records++;
    v->bytes += r->payload.len;
    v->notes += note;
    if (!v->print)
        return;
    json_out_obj(&o);
    json_out_key(&o, "segment");
    json_out_i64(&o, r->segment);
    json_out_key(&o, "offset");
    json_out_i64(&o, (int64_t)r->offset);
    json_out_key(&o, "session_id");
    if (note)
        json_out_null(&o);
    else
        json_out_str(&o, r->id);
    json_out_key(&o, "kind");
    json_out_cstr(&o, note ? "deliveries" : session_record_kind(r->payload));
    json_out_key(&o, "bytes");
    json_out_i64(&o, (int64_t)r->payload.len);
    json_out_end_obj(&o);
    buf_add_c(&line, '\n');
    (void)fwrite(line.p, 1, line.len, stdout);
    buf_done(&line);
}

/* A torn tail is what a crash leaves; anything else is damage. */
static void on_damage(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    struct journal_tally *v = ctx;

    v->torn += last;
    v->damaged += !last;
    fprintf(stderr, "%s: segment %u: %s at offset %llu, %llu bytes\n", v->dir, segment,
            last ? "torn tail" : "damage", (unsigned long long)offset, (unsigned long long)bytes);
}

/* 1 when there is anything torn or damaged. */
static int look_at(const char *dir, bool print)
{
    static const struct scan_events events = {on_record, on_damage};
    struct journal_tally v = {.dir = dir, .print = print};
    struct err e = {0};

    if (scan_journal(dir, &events, &v, &e)) {
        fprintf(stderr, "%s: %s\n", dir, e.text);
        return 1;
    }
    if (!print)
        printf("%s: %llu records, %llu bytes, %llu torn, %llu damaged\n", dir,
               (unsigned long long)v.records, (unsigned long long)v.bytes,
               (unsigned long long)v.torn, (unsigned long long)v.damaged);
    return v.torn + v.damaged > 0;
}

/* --- compact --- */

/* A journal, and what its records make. */
struct compacted {
    struct journal *journal;
    struct replayed replayed;
    struct loose_parts *loose;
};

/* A record of a newer program stops the command: what is not understood must not be dropped. */
static int on_replayed(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct compacted *c = ctx;

    replayed_apply(&c->replayed, session_id, payload);
    if (c->replayed.unsupported.kind != ERR_NONE) {
        *e = c->replayed.unsupported;
        return -1;
    }
    if (!str_eq_c(session_id, JOURNAL_NOTE))
        loose_parts_note(c->loose, c->journal, session_id, payload,
                         (uint32_t)journal_records(c->journal, session_id));
    return 0;
}

static bool is_needed(void *ctx, struct str id)
{
    bool ended = false;

    return session_find_any(ctx, id, &ended) || ended;
}

/* Drops sessions past their time and parts without a commit, then compacts until nothing is left to
 * do. */
static int compact_all(struct compacted *c, struct err *e)
{
    struct session_store *store = c->replayed.store;
    struct journal *j = c->journal;
    size_t n, dropped = 0;
    char *id;
    int rc;

    loose_parts_give_up_all(c->loose, j);
    while ((id = session_take_gone(store))) {
        journal_drop_earlier(j, str_cstr(id));
        free(id);
    }
    session_sweep(store, clock_wall_ms());
    while ((n = journal_drop_absent(j, is_needed, store)) > 0)
        dropped += n;
    do
        rc = journal_compact(j, true, e);
    while (rc == 1);
    printf("%zu sessions dropped\n", dropped);
    return rc;
}

/* Replays, compacts, closes. */
static int compact(const char *dir, const struct session_defaults *d)
{
    struct journal_options o = {
        .dir = dir, .durability = JOURNAL_PROCESS, .syncs = true, .last_word = session_last_word};
    struct model_options model = {0};
    struct compacted c = {.loose = loose_parts_new()};
    struct err e = {0};
    int rc = 1;

    if (scan_check(dir, &e) || replayed_init(&model, d, &c.replayed, &e) ||
        journal_open(NULL, &o, on_replayed, &c, &c.journal, &e) || compact_all(&c, &e))
        fprintf(stderr, "%s: %s\n", dir, e.text);
    else
        rc = 0;
    loose_parts_free(c.loose);
    journal_close(c.journal);
    replayed_done(&c.replayed);
    return rc;
}

/* -1: usage. */
static int compact_command(int argc, char **argv)
{
    struct session_defaults d;
    const char *dir = NULL;
    int64_t ms;

    session_defaults_init(&d);
    for (int i = 1; i < argc; i++) {
        bool ttl = strcmp(argv[i], "--tombstone-ttl") == 0;

        if (argv[i][0] != '-' && !dir) {
            dir = argv[i];
            continue;
        }
        if ((!ttl && strcmp(argv[i], "--export-retention") != 0) || i + 1 >= argc ||
            config_parse_duration(str_cstr(argv[i + 1]), &ms))
            return -1;
        if (ttl)
            d.tombstone_ttl_ms = (uint64_t)ms;
        else
            d.export_retention_ms = (uint64_t)ms;
        i++;
    }
    return dir ? compact(dir, &d) : -1;
}

/* -1: usage. */
static int look_command(int argc, char **argv)
{
    int rc = 0;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            return -1;
    }
    for (int i = 1; i < argc; i++)
        rc |= look_at(argv[i], strcmp(argv[0], "dump") == 0);
    return rc;
}

/* 0: fine; 1: damage, or it cannot be read; 2: usage. */
int journal_command(int argc, char **argv)
{
    int rc = -1;

    if (argc > 2 && (strcmp(argv[1], "verify") == 0 || strcmp(argv[1], "dump") == 0)) {
        rc = look_command(argc - 1, argv + 1);
    } else if (argc > 2 && strcmp(argv[1], "compact") == 0) {
        rc = compact_command(argc - 1, argv + 1);
    }
    if (rc >= 0)
        return rc;
    fprintf(stderr,
            "usage: rollgate journal verify|dump DIR...\n"
            "       rollgate journal compact DIR [--tombstone-ttl D] [--export-retention D]\n");
    return 2;
}
