/* Implements `rollgate journal check|dump|compact|repair`, without a gateway. check and dump scan
 * the segments and change nothing. compact opens the journal like a worker, which must not have it
 * open, and rewrites the records that are still needed. */

#include "worker/commands/offline_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/journal/backup.h"
#include "common/journal/journal.h"
#include "common/journal/repair.h"
#include "common/journal/scan.h"
#include "common/os/file_lock.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "worker/commands/id_form.h"
#include "worker/commands/replayed.h"
#include "worker/ledger/fragments.h"
#include "worker/session/store/session.h"

struct journal_tally {
    const char *dir;
    bool print;
    uint64_t records, bytes, damaged, torn;
    uint32_t segment; /* the segment that is read, and its counts so far */
    uint64_t segment_records, segment_bytes;
    struct map ids; /* of sessions or groups in the segment, as keys and values, owned */
    bool has_groups;
    bool open;
};

/* Reports whether a record is a group's: a JSON object in the dispatcher's journal. A session's
 * record may have no kind because a newer program wrote it, or because its head is unreadable. */
static bool is_of_group(struct str payload)
{
    return !session_record_kind(payload) && str_starts(payload, STR("{"));
}

static void free_ids(struct journal_tally *v)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->ids, &at)))
        free(slot->value);
    map_done(&v->ids);
    v->ids = (struct map){0};
}

/* Prints the line of a segment that was read completely. */
static void print_segment(struct journal_tally *v)
{
    if (v->open && !v->print)
        printf("%s/seg-%08u: %llu records, %zu %s, %llu bytes\n", v->dir, v->segment,
               (unsigned long long)v->segment_records, v->ids.n,
               v->has_groups ? "groups" : "sessions", (unsigned long long)v->segment_bytes);
    free_ids(v);
}

static void on_segment(void *ctx, uint32_t segment, uint64_t bytes)
{
    struct journal_tally *v = ctx;

    print_segment(v);
    v->segment = segment;
    v->segment_bytes = bytes;
    v->segment_records = 0;
    v->open = true;
}

/* Writes the kind of a record without one of a session: that of a group has it as its member t. */
static void put_group_kind(struct str payload, struct json_out *o)
{
    struct arena a = {0};
    const struct json *v = NULL;
    struct str kind = {0};

    if (json_parse(&a, payload, &v, NULL) == 0)
        kind = json_string(json_get(v, "t"));
    json_out_member_str(o, "kind", kind.p ? kind : STR("?"));
    arena_done(&a);
}

static void print_record(const struct scan_record *r, bool note)
{
    const char *kind = note ? "deliveries" : session_record_kind(r->payload);
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    json_out_member_i64(&o, "segment", r->segment);
    json_out_member_i64(&o, "offset", (int64_t)r->offset);
    json_out_key(&o, !note && is_of_group(r->payload) ? "group" : "session_id");
    if (note)
        json_out_null(&o);
    else
        json_out_str(&o, r->id);
    if (kind)
        json_out_member_cstr(&o, "kind", kind);
    else
        put_group_kind(r->payload, &o);
    json_out_member_i64(&o, "bytes", (int64_t)r->payload.len);
    json_out_end_obj(&o);
    buf_add_c(&line, '\n');
    (void)fwrite(line.p, 1, line.len, stdout);
    buf_done(&line);
}

/* Counts the record. dump prints one JSON line for it. */
static void on_record(void *ctx, const struct scan_record *r)
{
    struct journal_tally *v = ctx;
    bool note = str_eq_c(r->id, JOURNAL_NOTE);

    v->records++;
    v->segment_records++;
    v->bytes += r->payload.len;
    if (v->print) {
        print_record(r, note);
    } else if (!note && !map_get(&v->ids, r->id)) {
        char *id = mem_strndup(r->id.p, r->id.len);

        v->has_groups = v->has_groups || is_of_group(r->payload);
        (void)map_set(&v->ids, str_cstr(id), id);
    }
}

/* Counts and prints damage. A torn tail is normal after a crash; other damage is not. */
static void on_damage(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    struct journal_tally *v = ctx;

    v->torn += last;
    v->damaged += !last;
    fprintf(stderr, "%s: segment %u: %s at offset %llu, %llu bytes\n", v->dir, segment,
            last ? "torn tail" : "damage", (unsigned long long)offset, (unsigned long long)bytes);
}

/* Checks or dumps one journal. Returns 1 if anything is torn, damaged or unreadable. */
static int check_folder(const char *dir, bool print)
{
    static const struct scan_events events = {on_record, on_damage, on_segment};
    struct journal_tally v = {.dir = dir, .print = print};
    struct err e = {0};
    int rc = scan_journal(dir, &events, &v, &e);

    print_segment(&v);
    if (rc) {
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

/* A journal, and the sessions and fragments of its records. */
struct compacted {
    struct journal *journal;
    struct replayed replayed;
    struct fragments *fragments;
};

/* Applies a record. A record of a newer version, or of a group, stops the command, since it must
 * not be dropped. */
static int on_replayed(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct compacted *c = ctx;

    replayed_apply(&c->replayed, session_id, payload);
    if (c->replayed.refused.kind != ERR_NONE) {
        *e = c->replayed.refused;
        return -1;
    }
    if (!str_eq_c(session_id, JOURNAL_NOTE))
        fragments_add(c->fragments, c->journal, session_id, payload,
                      (uint32_t)journal_records(c->journal, session_id));
    return 0;
}

static bool is_needed(void *ctx, struct str id)
{
    bool ended = false;

    return session_find_any(ctx, id, &ended) || ended;
}

/* Drops expired sessions and fragments without a commit. Then compacts until nothing is left to
 * do. */
static int compact_all(struct compacted *c, struct err *e)
{
    struct session_store *store = c->replayed.store;
    struct journal *j = c->journal;
    size_t n, dropped = 0;
    char *id;
    int rc;

    fragments_drop_all(c->fragments, j);
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

/* Opens, compacts and closes the journal. Returns the exit status. */
static int compact_folder(const char *dir, const struct session_defaults *d)
{
    struct journal_options o = {
        .dir = dir, .durability = JOURNAL_PROCESS, .syncs = true, .last_word = session_last_word};
    struct model_options model = {0};
    struct compacted c = {.fragments = fragments_new()};
    struct err e = {0};
    int rc = 1;

    if (scan_check(dir, &e) || replayed_init(&model, d, &c.replayed, &e) ||
        journal_open(NULL, &o, on_replayed, &c, &c.journal, &e) || compact_all(&c, &e))
        fprintf(stderr, "%s: %s\n", dir, e.text);
    else
        rc = 0;
    fragments_free(c.fragments);
    journal_close(c.journal);
    replayed_done(&c.replayed);
    return rc;
}

/* Reads the arguments of compact, and runs it. Returns the exit status; -1: usage. */
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
    return dir ? compact_folder(dir, &d) : -1;
}

/* --- repair --- */

/* A session with records that can no longer be applied, because earlier ones are lost. */
struct loss {
    char *session;
    uint64_t records;
};

struct losses {
    const char *dir;
    struct replayed replayed;
    struct map by_session; /* struct loss, owned */
    bool has_groups;
};

static void on_manifest_rebuilt(void *ctx, const char *why)
{
    printf("%s: MANIFEST: %s; named all segments, in the order of their numbers\n",
           ((const struct losses *)ctx)->dir, why);
}

static void on_segment_missing(void *ctx, uint32_t number)
{
    printf("%s: segment %u: missing; its records are lost\n", ((const struct losses *)ctx)->dir,
           number);
}

static void on_kept_record(void *ctx, const struct scan_record *r)
{
    struct losses *v = ctx;
    uint64_t skipped = v->replayed.skipped;
    struct loss *loss;

    if (!str_eq_c(r->id, JOURNAL_NOTE) && is_of_group(r->payload)) {
        v->has_groups = true; /* the dispatcher's journal; its records cannot be checked */
        return;
    }
    replayed_apply(&v->replayed, r->id, r->payload);
    if (v->replayed.skipped == skipped)
        return;
    loss = map_get(&v->by_session, r->id);
    if (!loss) {
        loss = mem_zalloc(sizeof(*loss));
        loss->session = mem_strndup(r->id.p, r->id.len);
        (void)map_set(&v->by_session, str_cstr(loss->session), loss);
    }
    loss->records++;
}

static void on_bytes_lost(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    printf("%s: segment %u: %s at offset %llu; %llu bytes are not copied\n",
           ((const struct losses *)ctx)->dir, segment, last ? "torn tail" : "damage",
           (unsigned long long)offset, (unsigned long long)bytes);
}

/* Reports damage that the repair left. There should be no such damage. */
static void on_damage_left(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    on_bytes_lost(ctx, segment, offset, bytes, last);
}

/* Prints one line for each session that lost records. */
static void print_losses(struct losses *v)
{
    const struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->by_session, &at))) {
        const struct loss *loss = slot->value;
        bool ended = false;
        bool kept = session_find_any(v->replayed.store, str_cstr(loss->session), &ended) != NULL;

        printf("%s: session %s: %s; %llu later records do not apply\n", v->dir, loss->session,
               kept    ? "keeps what came before the loss"
               : ended ? "had ended"
                       : "lost whole",
               (unsigned long long)loss->records);
    }
}

static void free_losses(struct losses *v)
{
    const struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->by_session, &at))) {
        struct loss *loss = slot->value;

        free(loss->session);
        free(loss);
    }
    map_done(&v->by_session);
    replayed_done(&v->replayed);
}

/* Repairs the journal. Then replays the remaining records to name the sessions that lost some. */
static int repair_folder(const char *dir)
{
    static const struct repair_events repairs = {on_manifest_rebuilt, on_segment_missing,
                                                 on_bytes_lost};
    static const struct scan_events records = {.record = on_kept_record, .damage = on_damage_left};
    struct model_options model = {0};
    struct losses v = {.dir = dir};
    struct err e = {0};
    int rc = journal_repair(dir, &repairs, &v, &e);

    if (rc < 0 || replayed_init(&model, NULL, &v.replayed, &e) ||
        scan_journal(dir, &records, &v, &e)) {
        fprintf(stderr, "%s: %s\n", dir, e.text);
        rc = -1;
    } else if (rc == 0) {
        printf("%s: nothing to repair\n", dir);
    } else {
        print_losses(&v);
        printf("%s: the next start continues with what is left. Sessions that were only "
               "in a missing segment are gone and cannot be named; others may end earlier\n",
               dir);
        if (v.has_groups)
            printf("%s: groups have records in it; which of them lost some is not known\n", dir);
    }
    free_losses(&v);
    return rc < 0;
}

/* Checks all journals of a state folder, or the folder itself if it is a journal. */
static int check_journals(const char *dir, bool print)
{
    struct backup_folders found = {0};
    struct err e = {0};
    int rc = 0;

    if (backup_find_journals(dir, &found, &e)) {
        fprintf(stderr, "%s: %s\n", dir, e.text);
        return 1;
    }
    for (size_t i = 0; i < found.n; i++)
        rc |= check_folder(found.at[i], print);
    if (found.n == 0)
        rc = check_folder(dir, print);
    backup_free_folders(&found);
    return rc;
}

/* Reads the arguments of check or dump, and runs it. Returns the exit status; -1: usage. */
static int check_command_line(int argc, char **argv)
{
    int rc = 0;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            return -1;
    }
    for (int i = 1; i < argc; i++)
        rc |= check_journals(argv[i], strcmp(argv[0], "dump") == 0);
    return rc;
}

/* Returns 0 if all is fine, 1 for damage or an unreadable journal, 2 for usage. */
int journal_command(int argc, char **argv)
{
    int rc = -1;

    id_form_read();
    file_lock_allow_none(command_line_take_flag(&argc, argv, "--unlocked-state"));
    if (argc > 2 && (strcmp(argv[1], "check") == 0 || strcmp(argv[1], "dump") == 0)) {
        rc = check_command_line(argc - 1, argv + 1);
    } else if (argc > 2 && strcmp(argv[1], "compact") == 0) {
        rc = compact_command(argc - 1, argv + 1);
    } else if (argc == 3 && strcmp(argv[1], "repair") == 0 && argv[2][0] != '-') {
        rc = repair_folder(argv[2]);
    }
    if (rc >= 0)
        return rc;
    fprintf(stderr,
            "usage: rollgate journal check|dump DIR...\n"
            "       rollgate journal repair DIR [--unlocked-state]\n"
            "       rollgate journal compact DIR [--tombstone-ttl D] [--export-retention D]\n");
    return 2;
}
