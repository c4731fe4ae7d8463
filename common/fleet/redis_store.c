/* Calls become EVALSHA of store_scripts.def; replies become answers. What a reply means depends on
 * the script alone, so each script has one reader. */
#include "common/fleet/redis_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/codec/sha1.h"
#include "common/fleet/place_table.h"
#include "common/fleet/redis_link.h"
#include "common/fleet/redis_replies.h"
#include "common/fleet/replica_round.h"
#include "common/fleet/resp.h"
#include "common/fleet/store_url.h"
#include "common/os/loop.h"

enum { READ_BYTES = 1 << 20, WATCH_AGAIN_MS = 500, REPLICA_MS = 1000 };

enum script {

#define SCRIPT(name, text) SCRIPT_##name,
#include "common/fleet/store_scripts.def"
#undef SCRIPT
    SCRIPTS
};

static const struct str script_texts[SCRIPTS] = {
#define SCRIPT(name, text) STR_LIT(text),
#include "common/fleet/store_scripts.def"
#undef SCRIPT
};

struct store_watching {
    store_watch_fn fn; /* NULL: nobody watches */
    void *ctx;
    struct redis_link *link; /* NULL until the first watch */
    struct loop_timer again; /* begins anew after the link broke */
    unsigned round;          /* grows with each beginning: answers of an older one are ignored */
};

struct redis_store {
    struct store store;
    struct loop *loop;
    struct redis_link *link;
    bool replicates;             /* appends wait for a replica */
    struct replica_round *round; /* appends that no WAIT follows yet; NULL: none */
    struct loop_task waiting;    /* sends the WAIT */
    unsigned limit_ms;           /* longest silence of the server */
    struct redis_link *claims;   /* WAIT stops a connection, so claims have one of their own */
    char shas[SCRIPTS][SHA1_HEX_LEN + 1];
    struct buf prefix;  /* "rg:NAME:" */
    struct buf key;     /* of a place, while it is made */
    struct arena arena; /* keys of one call, or parts of one answer */
    struct store_watching watching;
    struct store_url url;
};

/* One call that waits for its reply. */
struct redis_call {
    struct redis_store *store;
    struct redis_link *link;
    store_answer_fn fn;
    void *ctx;
    redis_reader read;
    struct replica_round *round; /* of an append or drop; NULL: it waits for no replica */
};

static struct redis_store *store_of(struct store *s)
{
    return CONTAINER_OF(s, struct redis_store, store);
}

/* --- keys --- */

static struct str make_key(struct redis_store *s, struct str name)
{
    return arena_printf(&s->arena, "%.*s%.*s", (int)s->prefix.len, s->prefix.p, (int)name.len,
                        name.p);
}

/* The key KIND{INDEX} of a place, or KIND{INDEX}:SESSION. The brace is part of `kind`. */
static struct str place_key(struct redis_store *s, const char *kind, uint32_t place,
                            struct str session)
{
    buf_clear(&s->key);
    buf_add_str(&s->key, buf_str(&s->prefix));
    buf_puts(&s->key, kind);
    if (place == FLEET_DISPATCHER)
        buf_add_c(&s->key, 'd');
    else
        buf_add_u64(&s->key, place);
    buf_add_c(&s->key, '}');
    if (session.p) {
        buf_add_c(&s->key, ':');
        buf_add_str(&s->key, session);
    }
    return arena_str(&s->arena, buf_str(&s->key));
}

static struct str entry_key(struct redis_store *s, uint32_t place)
{
    return place_key(s, "place:{", place, str_of(NULL, 0));
}

/* The name of the place's entry: its key without what precedes names. */
static struct str name_place(struct redis_store *s, uint32_t place)
{
    return str_sub(entry_key(s, place), s->prefix.len, SIZE_MAX);
}

static struct str sessions_key(struct redis_store *s, uint32_t place)
{
    return place_key(s, "sessions:{", place, str_of(NULL, 0));
}

static struct str complete_key(struct redis_store *s, uint32_t place)
{
    return place_key(s, "complete:{", place, str_of(NULL, 0));
}

static struct str log_key(struct redis_store *s, uint32_t place, struct str session)
{
    return place_key(s, "log:{", place, session);
}

static struct str decimal(struct redis_store *s, uint64_t number)
{
    return arena_printf(&s->arena, "%llu", (unsigned long long)number);
}

/* A server's number, as the scripts write it. */
static struct str server_name(struct redis_store *s, uint64_t server)
{
    return arena_printf(&s->arena, "%016llx", (unsigned long long)server);
}

static struct str flag(bool value)
{
    return value ? STR("1") : STR("0");
}

/* --- replies --- */

/* Chooses the verdict of an error reply. */
static void read_error(const struct redis_call *c, const struct resp *reply, struct store_answer *a)
{
    if (redis_read_error(&c->store->arena, reply, a))
        redis_link_break(c->link, a->why);
}

/* Ends a call. */
static void answer_call(struct redis_call *c, struct store_answer *a)
{
    struct redis_store *s = c->store;
    store_answer_fn fn = c->fn;
    void *ctx = c->ctx;

    free(c);
    fn(ctx, a);
    arena_reset(&s->arena);
}

static void on_reply(void *ctx, const struct resp *reply, const char *why)
{
    struct redis_call *c = ctx;
    struct store_answer a = {0};

    arena_reset(&c->store->arena);
    if (!reply)
        a = (struct store_answer){.verdict = STORE_LOST, .why = why};
    else if (reply->kind == RESP_ERROR)
        read_error(c, reply, &a);
    else if (!redis_read_verdict(reply, &a) || !c->read(&c->store->arena, reply, &a))
        a = (struct store_answer){.verdict = STORE_FAILED,
                                  .why = "the reply has an unknown form: is this name used by "
                                         "another program?"};
    if (c->round && a.verdict != STORE_LOST)
        replica_round_add(c->round, c, &a);
    else
        answer_call(c, &a);
}

/* The reply of a plain command. */
static void on_plain_reply(void *ctx, const struct resp *reply, const char *why)
{
    struct redis_call *c = ctx;
    struct store_answer a = {.verdict = STORE_DONE};
    struct resp one = {.kind = RESP_ARRAY, .n = 1, .items = reply};

    arena_reset(&c->store->arena);
    if (!reply)
        a = (struct store_answer){.verdict = STORE_LOST, .why = why};
    else if (reply->kind == RESP_ERROR)
        read_error(c, reply, &a);
    else if (!c->read(&c->store->arena, reply->kind == RESP_ARRAY ? reply : &one, &a))
        a = (struct store_answer){.verdict = STORE_FAILED, .why = "the reply has an unknown form"};
    answer_call(c, &a);
}

/* --- calls --- */

/* Begins an EVALSHA with n_keys keys of n_words words. They follow by resp_add_word. */
static struct buf *begin_script(struct redis_store *s, struct redis_link *link, enum script script,
                                size_t n_keys, size_t n_words)
{
    struct buf *out = redis_link_begin(link);

    resp_begin_command(out, 3 + n_words);
    resp_add_word(out, STR("EVALSHA"));
    resp_add_word(out, str_of(s->shas[script], SHA1_HEX_LEN));
    resp_add_number(out, n_keys);
    return out;
}

static struct redis_call *new_call(struct redis_store *s, struct store_call call, redis_reader read)
{
    struct redis_call *c = mem_zalloc(sizeof(*c));

    *c = (struct redis_call){
        .store = s, .link = s->link, .fn = call.fn, .ctx = call.ctx, .read = read};
    return c;
}

/* A script whose words are few. */
static void call_script(struct redis_store *s, enum script script, size_t n_keys,
                        const struct str *words, size_t n_words, struct redis_call *c)
{
    struct buf *out = begin_script(s, s->link, script, n_keys, n_words);

    for (size_t i = 0; i < n_words; i++)
        resp_add_word(out, words[i]);
    redis_link_end(s->link, on_reply, c);
}

/* A failover must not forget a claim that is used, so a replica has it first, if there is one. Asks
 * for replicas, then waits for one of them. */
struct claimed {
    struct redis_call *call;
    struct store_answer a; /* its owner is the caller's own name, in owner_text */
    char owner_text[64];
};

static void end_claim(struct claimed *claimed, const char *why)
{
    struct store_answer a = claimed->a;

    a.owner = str_cstr(claimed->owner_text);
    if (why)
        a = (struct store_answer){.verdict = STORE_LOST, .why = why};
    answer_call(claimed->call, &a);
    free(claimed);
}

static void on_replicated(void *ctx, const struct resp *reply, const char *why)
{
    if (!reply)
        end_claim(ctx, why);
    else
        end_claim(ctx, reply->number > 0 ? NULL : "no replica has confirmed the claim");
}

/* The reply of ROLE: "master", an offset, and a list of replicas. */
static void on_role(void *ctx, const struct resp *reply, const char *why)
{
    struct claimed *claimed = ctx;

    if (!reply || !resp_has_items(reply, 3) || reply->items[2].n == 0)
        end_claim(claimed, reply ? NULL : why);
    else
        replica_wait(claimed->call->link, REPLICA_MS, on_replicated, claimed);
}

static void on_claimed(void *ctx, const struct resp *reply, const char *why)
{
    struct redis_call *c = ctx;
    struct store_answer a = {0};
    struct claimed *claimed;
    struct buf *out;

    if (!reply || !redis_read_verdict(reply, &a) || a.verdict != STORE_DONE ||
        !c->read(&c->store->arena, reply, &a)) {
        on_reply(c, reply, why);
        return;
    }
    claimed = mem_zalloc(sizeof(*claimed));
    claimed->call = c;
    claimed->a = a;
    (void)snprintf(claimed->owner_text, sizeof(claimed->owner_text), "%.*s", (int)a.owner.len,
                   a.owner.p);
    out = redis_link_begin(c->link);
    resp_begin_command(out, 1);
    resp_add_word(out, STR("ROLE"));
    redis_link_end(c->link, on_role, claimed);
}

static void redis_claim(struct store *store, const struct store_claim *claim,
                        struct store_call call)
{
    struct redis_store *s = store_of(store);
    const struct str words[] = {
        entry_key(s, claim->place),
        make_key(s, arena_printf(&s->arena, "block:%u", (unsigned)claim->block)),
        make_key(s, STR("index")),
        sessions_key(s, claim->place),
        complete_key(s, claim->place),
        make_key(s, STR("servers")),
        claim->me,
        decimal(s, claim->beat),
        decimal(s, claim->known),
        flag(claim->incomplete),
        name_place(s, claim->place),
        make_key(s, STR("changes")),
        decimal(s, claim->reads),
        flag(claim->bare),
        flag(claim->restores),
        decimal(s, claim->seen)};
    struct redis_call *c = new_call(s, call, redis_read_claim);
    struct buf *out = begin_script(s, s->claims, SCRIPT_claim, 6, ARRAY_LEN(words));

    c->link = s->claims;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        resp_add_word(out, words[i]);
    redis_link_end(s->claims, on_claimed, c);
}

static void redis_renew(struct store *store, struct str node, const struct store_renewal *at,
                        size_t n, struct store_call call)
{
    struct redis_store *s = store_of(store);
    struct buf *out = begin_script(s, s->link, SCRIPT_renew, 4 + n, 4 + n + 2 + 5 * n);

    resp_add_word(out, make_key(s, arena_printf(&s->arena, "node:%.*s", (int)node.len, node.p)));
    resp_add_word(out, make_key(s, STR("orders")));
    resp_add_word(out, make_key(s, STR("beats")));
    resp_add_word(out, make_key(s, STR("servers")));
    for (size_t i = 0; i < n; i++)
        resp_add_word(out, entry_key(s, at[i].place));
    resp_add_word(out, node);
    resp_add_word(out, make_key(s, STR("changes")));
    for (size_t i = 0; i < n; i++) {
        resp_add_number(out, at[i].epoch);
        resp_add_number(out, !at[i].whole ? 0 : at[i].left ? 3 : 1 + at[i].replicated);
        resp_add_word(out, name_place(s, at[i].place));
        resp_add_number(out, at[i].version);
        resp_add_word(out, server_name(s, at[i].server));
    }
    redis_link_end(s->link, on_reply, new_call(s, call, redis_read_renewal));
}

static void on_round_sent(struct loop_task *t)
{
    struct redis_store *s = CONTAINER_OF(t, struct redis_store, waiting);

    replica_round_send(s->round, s->link, MIN_OF((uint64_t)REPLICA_MS, s->limit_ms / 2));
    s->round = NULL;
}

static void on_round_ended(void *call, struct store_answer *a)
{
    answer_call(call, a);
}

/* Returns the round of an append that is sent now; NULL: appends wait for no replica. */
static struct replica_round *join_round(struct redis_store *s)
{
    if (s->replicates && !s->round) {
        s->round = replica_round_new(on_round_ended);
        loop_task_post(s->loop, &s->waiting, on_round_sent);
    }
    return s->round;
}

void redis_store_await_replica(struct store *s)
{
    store_of(s)->replicates = true;
}

static void redis_append(struct store *store, uint32_t place, uint64_t epoch,
                         const struct store_record *at, size_t n, struct store_call call)
{
    struct redis_store *s = store_of(store);
    struct redis_call *c = new_call(s, call, redis_read_refusals);
    struct buf *out = begin_script(s, s->link, SCRIPT_append, 3 + n, 3 + n + 2 + 4 * n);
    char *last = arena_alloc(&s->arena, n);

    resp_add_word(out, entry_key(s, place));
    resp_add_word(out, sessions_key(s, place));
    resp_add_word(out, complete_key(s, place));
    for (size_t i = 0; i < n; i++) {
        resp_add_word(out, log_key(s, place, at[i].session));
        last[i] = at[i].last ? '1' : '0';
    }
    resp_add_number(out, epoch);
    resp_add_word(out, str_of(last, n));
    for (size_t i = 0; i < n; i++) {
        resp_add_word(out, at[i].session);
        resp_add_number(out, at[i].first);
        resp_add_number(out, at[i].n);
        resp_add_word(out, at[i].bytes);
    }
    c->round = join_round(s);
    redis_link_end(s->link, on_reply, c);
}

static void redis_drop(struct store *store, uint32_t place, uint64_t epoch,
                       const struct store_cut *cut, struct store_call call)
{
    struct redis_store *s = store_of(store);
    struct redis_call *c = new_call(s, call, redis_read_base);
    const struct str words[] = {
        entry_key(s, place),    sessions_key(s, place), log_key(s, place, cut->session),
        complete_key(s, place), decimal(s, epoch),      cut->session,
        flag(cut->keep),        decimal(s, cut->from)};

    c->round = s->round; /* its caller frees the log, which earlier appends refer to */
    call_script(s, SCRIPT_drop, 4, words, ARRAY_LEN(words), c);
}

static void redis_read(struct store *store, uint32_t place, struct str session, uint64_t from,
                       struct store_call call)
{
    struct redis_store *s = store_of(store);
    struct str sessions = sessions_key(s, place);

    if (!session.p) {
        call_script(
            s, SCRIPT_lengths, 2,
            (const struct str[]){sessions, complete_key(s, place), log_key(s, place, STR(""))}, 3,
            new_call(s, call, redis_read_lengths));
        return;
    }
    call_script(s, SCRIPT_read, 2,
                (const struct str[]){sessions, log_key(s, place, session), session,
                                     decimal(s, from), decimal(s, READ_BYTES)},
                5, new_call(s, call, redis_read_log));
}

static void redis_put(struct store *store, struct str key, struct str value, uint64_t edition,
                      struct store_call call)
{
    struct redis_store *s = store_of(store);
    const struct str words[] = {
        make_key(s, key),    make_key(s, STR("index")),  make_key(s, STR("beats")), key, value,
        decimal(s, edition), make_key(s, STR("changes"))};

    call_script(s, SCRIPT_put, 3, words, ARRAY_LEN(words), new_call(s, call, redis_read_edition));
}

static void redis_release(struct store *store, uint32_t place, uint64_t epoch, uint64_t server,
                          struct store_call call)
{
    struct redis_store *s = store_of(store);
    const struct str words[] = {entry_key(s, place),    sessions_key(s, place),
                                complete_key(s, place), decimal(s, epoch),
                                name_place(s, place),   make_key(s, STR("changes")),
                                server_name(s, server)};

    call_script(s, SCRIPT_release, 3, words, ARRAY_LEN(words), new_call(s, call, redis_read_base));
}

void redis_store_erase(struct store *store, struct store_call call)
{
    struct redis_store *s = store_of(store);
    const struct str words[] = {make_key(s, STR("index")), buf_str(&s->prefix)};

    call_script(s, SCRIPT_erase, 1, words, ARRAY_LEN(words), new_call(s, call, redis_read_base));
}

void redis_store_forget(struct store *store, struct str node, uint64_t beat, struct store_call call)
{
    struct redis_store *s = store_of(store);
    const struct str words[] = {make_key(s, STR("index")), make_key(s, STR("beats")),
                                buf_str(&s->prefix), node, decimal(s, beat)};

    call_script(s, SCRIPT_forget, 2, words, ARRAY_LEN(words),
                new_call(s, call, redis_read_edition));
}

void redis_store_reconnect(struct store *store, const char *why)
{
    redis_link_break(store_of(store)->link, why);
}

void redis_store_info(struct store *store, struct store_call call)
{
    struct redis_store *s = store_of(store);
    struct buf *out = redis_link_begin(s->link);

    resp_begin_command(out, 1);
    resp_add_word(out, STR("INFO"));
    redis_link_end(s->link, on_plain_reply, new_call(s, call, redis_read_texts));
}

/* --- changes --- */

struct entry_listing {
    struct redis_store *store;
    unsigned round;
    bool all;
};

static void report_entry(struct redis_store *s, const struct resp *item)
{
    struct store_entry entry;

    redis_read_entry(&s->arena, item, &entry);
    s->watching.fn(s->watching.ctx, &entry, NULL);
}

static void begin_watch(struct redis_store *s);

static void on_again(struct loop_timer *t)
{
    begin_watch(CONTAINER_OF(t, struct redis_store, watching.again));
}

/* Reports the loss of changes, and begins again after a pause. */
static void interrupt_watch(struct redis_store *s, const char *why)
{
    if (!s->watching.fn || loop_timer_active(&s->watching.again))
        return;
    s->watching.round++;
    loop_timer_set(s->loop, &s->watching.again, WATCH_AGAIN_MS, on_again);
    s->watching.fn(s->watching.ctx, NULL, why);
}

static void on_listed(void *ctx, const struct resp *reply, const char *why)
{
    struct entry_listing *l = ctx;
    struct redis_store *s = l->store;
    bool current = s->watching.fn && l->round == s->watching.round, all = l->all;
    const struct resp *list = reply && resp_has_items(reply, 2) ? &reply->items[1] : NULL;

    free(l);
    if (!current)
        return;
    if (!list) {
        interrupt_watch(s, reply ? arena_cstr(&s->arena, str_sub(reply->text, 0, REDIS_WHY_MAX))
                                 : why);
        return;
    }
    for (size_t i = 0; i < list->n; i++)
        report_entry(s, &list->items[i]);
    arena_reset(&s->arena);
    if (all)
        s->watching.fn(s->watching.ctx, NULL, NULL);
}

/* Asks for one entry, or for all (an absent name). */
static void list_entries(struct redis_store *s, struct str name)
{
    struct entry_listing *l = mem_zalloc(sizeof(*l));
    struct buf *out = begin_script(s, s->link, SCRIPT_list, 1, 2 + (name.p != NULL));

    *l = (struct entry_listing){.store = s, .round = s->watching.round, .all = !name.p};
    resp_add_word(out, make_key(s, STR("index")));
    resp_add_word(out, buf_str(&s->prefix));
    if (name.p)
        resp_add_word(out, name);
    redis_link_end(s->link, on_listed, l);
}

/* "subscribe" confirms; "message" names an entry that changed. */
static void on_push(void *ctx, const struct resp *message)
{
    struct redis_store *s = ctx;

    if (s->watching.fn && str_eq_c(resp_text(message, 0), "message"))
        list_entries(s, resp_text(message, 2));
}

static void on_watch_down(void *ctx, const char *why)
{
    interrupt_watch(ctx, why);
}

/* From now on changes are reported, so what is listed after this misses none. */
static void on_subscribed(void *ctx, const struct resp *reply, const char *why)
{
    struct redis_store *s = ctx;

    (void)why; /* on_watch_down reports it */
    if (reply && reply->kind == RESP_ARRAY)
        list_entries(s, str_of(NULL, 0));
    else if (reply)
        interrupt_watch(s, "SUBSCRIBE was refused");
}

static void begin_watch(struct redis_store *s)
{
    struct buf *out = redis_link_begin(s->watching.link);

    s->watching.round++;
    resp_begin_command(out, 2);
    resp_add_word(out, STR("SUBSCRIBE"));
    resp_add_word(out, make_key(s, STR("changes")));
    redis_link_end(s->watching.link, on_subscribed, s);
}

static void redis_watch(struct store *store, store_watch_fn fn, void *ctx)
{
    struct redis_store *s = store_of(store);

    s->watching.fn = fn;
    s->watching.ctx = ctx;
    loop_timer_stop(s->loop, &s->watching.again);
    begin_watch(s);
}

/* --- making --- */

static void redis_free(struct store *store)
{
    struct redis_store *s = store_of(store);

    s->watching.fn = NULL;
    loop_task_cancel(s->loop, &s->waiting);
    if (s->round)
        on_round_sent(&s->waiting); /* ends with the link */
    loop_timer_stop(s->loop, &s->watching.again);
    redis_link_free(s->watching.link);
    redis_link_free(s->claims);
    redis_link_free(s->link);
    buf_done(&s->prefix);
    buf_done(&s->key);
    arena_done(&s->arena);
    store_url_done(&s->url);
    free(s);
}

static const struct store_kind redis_kind = {
    .claim = redis_claim,
    .renew = redis_renew,
    .append = redis_append,
    .drop = redis_drop,
    .read = redis_read,
    .put = redis_put,
    .watch = redis_watch,
    .release = redis_release,
    .free = redis_free,
};

/* False: what was made is freed with the store. */
static bool make_links(struct redis_store *s, const struct redis_link_options *o, struct err *e)
{
    struct redis_link_options watching = *o;

    watching.scripts = NULL;
    watching.n_scripts = 0;
    watching.on_push = on_push;
    watching.on_down = on_watch_down;
    watching.ctx = s;
    s->link = redis_link_new(o, e);
    if (s->link)
        s->claims = redis_link_new(o, e);
    if (s->claims)
        s->watching.link = redis_link_new(&watching, e);
    return s->watching.link != NULL;
}

void redis_store_set_name(struct store *store, const char *name)
{
    struct redis_store *s = store_of(store);

    buf_clear(&s->prefix);
    buf_printf(&s->prefix, "rg:%s:", name);
}

struct store *redis_store_open(struct loop *loop, struct str url, unsigned limit_ms, struct err *e)
{
    struct redis_store *s = mem_zalloc(sizeof(*s));
    const struct redis_link_options o = {.loop = loop,
                                         .url = &s->url,
                                         .limit_ms = limit_ms,
                                         .scripts = script_texts,
                                         .n_scripts = SCRIPTS};

    s->store.kind = &redis_kind;
    s->loop = loop;
    s->limit_ms = limit_ms;
    if (store_url_parse(url, &s->url, e)) {
        free(s);
        return NULL;
    }
    redis_store_set_name(&s->store, s->url.name);
    for (size_t i = 0; i < SCRIPTS; i++)
        sha1_hex(script_texts[i], s->shas[i]);
    if (make_links(s, &o, e))
        return &s->store;
    redis_free(&s->store);
    return NULL;
}
