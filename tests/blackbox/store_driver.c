/*
 * Drives a store of a fleet (common/fleet/fleet_store.h): orders as JSON lines on stdin, answers as
 * JSON lines on stdout. For test_fleet_store.py.
 *
 *     store_driver redis://127.0.0.1:6379?name=x LIMIT_MS | store_driver file:PATH 0
 *     {"op": "claim", "id": 1, "place": 7, "block": 0, "me": "a", "beat": 0, "known": 0}
 *     {"op": "append", "id": 2, "place": 7, "epoch": 9, "records": [["w7-1", 0, 0, "text"]]}
 *     {"op": "watch"}
 * End of input ends the program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/fleet/redis_store.h"
#include "common/os/loop.h"
#include "file_store.h"

enum { RECORDS_MAX = 256 };

static struct {
    struct loop *loop;
    struct store *store;
    struct loop_io in;
    struct buf input;
} driver;

struct order {
    uint64_t id;
};

static void print_line(struct buf *line)
{
    buf_add_c(line, '\n');
    for (size_t at = 0; at < line->len;) {
        ssize_t n = write(STDOUT_FILENO, line->p + at, line->len - at);

        CHECK(n > 0);
        at += (size_t)n;
    }
    buf_done(line);
}

static void put_number(struct json_out *o, const char *key, uint64_t number)
{
    json_out_key(o, key);
    json_out_i64(o, (int64_t)number);
}

/* Numbers of servers are larger than those of JSON. */
static struct str hexadecimal(uint64_t number)
{
    static char text[32];

    return str_of(text, (size_t)snprintf(text, sizeof(text), "%llx", (unsigned long long)number));
}

static void on_answer(void *ctx, const struct store_answer *a)
{
    struct order *order = ctx;
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    put_number(&o, "id", order->id);
    json_out_member_cstr(&o, "verdict", store_verdict_name(a->verdict));
    json_out_member_str(&o, "why", str_cstr(a->why));
    json_out_member_str(&o, "owner", a->owner);
    put_number(&o, "epoch", a->epoch);
    put_number(&o, "base", a->base);
    put_number(&o, "version", a->version);
    put_number(&o, "n_logs", a->n_logs);
    put_number(&o, "doubt", a->doubt_ms);
    json_out_member_str(&o, "server", hexadecimal(a->server));
    put_number(&o, "beat", a->beat);
    json_out_member_bool(&o, "whole", a->whole);
    put_number(&o, "first", a->first);
    put_number(&o, "next", a->next);
    json_out_member_str(&o, "value", a->value);
    put_number(&o, "edition", a->edition);
    json_out_key(&o, "beats");
    json_out_obj(&o);
    for (size_t i = 0; i < a->n_beats; i++) {
        json_out_key_str(&o, a->beats[i].node);
        json_out_i64(&o, (int64_t)a->beats[i].beat);
    }
    json_out_end_obj(&o);
    json_out_key(&o, "refused");
    json_out_arr(&o);
    for (size_t i = 0; i < a->n_refused; i++) {
        json_out_arr(&o);
        json_out_i64(&o, (int64_t)a->refused[i].i);
        json_out_cstr(&o, store_verdict_name(a->refused[i].verdict));
        json_out_i64(&o, (int64_t)a->refused[i].next);
        json_out_i64(&o, (int64_t)a->refused[i].base);
        json_out_end_arr(&o);
    }
    json_out_end_arr(&o);
    json_out_key(&o, "texts");
    json_out_arr(&o);
    for (size_t i = 0; i < a->n_texts; i++)
        json_out_str(&o, a->texts[i]);
    json_out_end_arr(&o);
    json_out_key(&o, "logs");
    json_out_arr(&o);
    for (size_t i = 0; i < a->n_texts && a->logs; i++) {
        json_out_arr(&o);
        json_out_i64(&o, (int64_t)a->logs[i].first);
        json_out_i64(&o, (int64_t)a->logs[i].next);
        json_out_i64(&o, a->logs[i].complete);
        json_out_end_arr(&o);
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    print_line(&line);
    free(order);
}

static void on_entry(void *ctx, const struct store_entry *entry, const char *why)
{
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    (void)ctx;
    json_out_obj(&o);
    json_out_member_str(&o, "entry", entry ? entry->key : str_of(NULL, 0));
    json_out_member_str(&o, "why", str_cstr(why));
    if (entry) {
        json_out_member_str(&o, "value", entry->value);
        json_out_member_str(&o, "owner", entry->owner);
        put_number(&o, "edition", entry->edition);
        put_number(&o, "beat", entry->beat);
        put_number(&o, "epoch", entry->epoch);
        put_number(&o, "version", entry->version);
        json_out_member_bool(&o, "whole", entry->whole);
        json_out_member_bool(&o, "vacant", entry->vacant);
        json_out_member_bool(&o, "taken", entry->taken);
    }
    json_out_end_obj(&o);
    print_line(&line);
}

static uint64_t to_number(const struct json *v)
{
    uint64_t n = 0;

    if (v)
        (void)str_to_u64(json_text(v), UINT64_MAX, &n);
    return n;
}

static uint64_t number(const struct json *v, const char *key)
{
    return to_number(json_get(v, key));
}

static struct str text(const struct json *v, const char *key)
{
    const struct json *member = json_get(v, key);

    return json_is(member, JSON_STRING) ? json_string(member) : str_of(NULL, 0);
}

static uint64_t to_server(const struct json *v)
{
    char digits[32] = "0";

    if (json_is(v, JSON_STRING))
        (void)snprintf(digits, sizeof(digits), "%.*s", (int)json_string(v).len, json_string(v).p);
    return strtoull(digits, NULL, 16);
}

static void order_claim(const struct json *v, struct store_call call)
{
    const struct store_claim claim = {
        .place = (uint32_t)number(v, "place"),
        .block = (uint32_t)number(v, "block"),
        .me = text(v, "me"),
        .beat = number(v, "beat"),
        .known = number(v, "known"),
        .reads = number(v, "reads"),
        .seen = number(v, "seen"),
        .incomplete = json_is_true(json_get(v, "incomplete")),
        .bare = json_is_true(json_get(v, "bare")),
        .restores = json_is_true(json_get(v, "restores")),
    };

    store_claim(driver.store, &claim, call);
}

static void order_renew(const struct json *v, struct store_call call)
{
    const struct json *list = json_get(v, "places");
    struct store_renewal at[RECORDS_MAX];
    size_t n = list ? list->n : 0;

    CHECK(n <= RECORDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_at(list, i);

        at[i] = (struct store_renewal){.place = (uint32_t)to_number(json_at(item, 0)),
                                       .epoch = to_number(json_at(item, 1)),
                                       .whole = json_is_true(json_at(item, 2)),
                                       .version = to_number(json_at(item, 3)),
                                       .server = to_server(json_at(item, 4)),
                                       .replicated = json_is_true(json_at(item, 5)),
                                       .left = json_is_true(json_at(item, 6))};
    }
    store_renew(driver.store, text(v, "node"), at, n, call);
}

static void order_append(const struct json *v, struct store_call call)
{
    const struct json *list = json_get(v, "records");
    struct store_record at[RECORDS_MAX];
    size_t n = list ? list->n : 0;

    CHECK(n <= RECORDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_at(list, i);

        at[i] = (struct store_record){.session = json_string(json_at(item, 0)),
                                      .first = to_number(json_at(item, 1)),
                                      .n = to_number(json_at(item, 2)),
                                      .bytes = json_string(json_at(item, 3)),
                                      .last = json_is_true(json_at(item, 4))};
    }
    store_append(driver.store, (uint32_t)number(v, "place"), number(v, "epoch"), at, n, call);
}

static void run_order(const struct json *v)
{
    struct str op = text(v, "op");
    uint32_t place = (uint32_t)number(v, "place");
    uint64_t epoch = number(v, "epoch");
    struct order *order = NULL;
    struct store_call call;

    if (str_eq_c(op, "watch")) {
        store_watch(driver.store, on_entry, NULL);
        return;
    }
    order = mem_zalloc(sizeof(*order));
    order->id = number(v, "id");
    call = (struct store_call){on_answer, order};
    if (str_eq_c(op, "claim"))
        order_claim(v, call);
    else if (str_eq_c(op, "renew"))
        order_renew(v, call);
    else if (str_eq_c(op, "append"))
        order_append(v, call);
    else if (str_eq_c(op, "drop"))
        store_drop(driver.store, place, epoch,
                   &(struct store_cut){text(v, "session"), json_is_true(json_get(v, "keep")),
                                       number(v, "from")},
                   call);
    else if (str_eq_c(op, "read"))
        store_read(driver.store, place, text(v, "session"), number(v, "from"), call);
    else if (str_eq_c(op, "put"))
        store_put(driver.store, text(v, "key"), text(v, "value"), number(v, "edition"), call);
    else if (str_eq_c(op, "release"))
        store_release(driver.store, place, epoch, to_server(json_get(v, "server")), call);
    else if (str_eq_c(op, "erase"))
        redis_store_erase(driver.store, call);
    else
        CHECK(!"unknown op");
}

static void on_input(struct loop_io *io, unsigned events)
{
    ssize_t n = read(STDIN_FILENO, buf_reserve(&driver.input, 1 << 20), 1 << 20);
    const char *end;

    (void)io;
    (void)events;
    if (n > 0)
        driver.input.len += (size_t)n;
    while ((end = memchr(driver.input.p, '\n', driver.input.len))) {
        struct str line = str_of(driver.input.p, (size_t)(end - driver.input.p));
        struct arena a = {0};
        const struct json *v = NULL;
        struct err e;

        CHECK(json_parse(&a, line, &v, &e) == 0);
        run_order(v);
        arena_done(&a);
        buf_consume(&driver.input, line.len + 1);
    }
    if (n == 0)
        loop_stop(driver.loop);
}

int main(int argc, char **argv)
{
    struct err e = {0};

    CHECK(argc == 3);
    log_setup("driver", LOG_DEBUG, LOG_TEXT);
    driver.loop = loop_new(&e);
    if (strncmp(argv[1], "file:", 5) == 0)
        driver.store = file_store_new(driver.loop, argv[1] + 5);
    else
        driver.store =
            redis_store_open(driver.loop, str_cstr(argv[1]), (unsigned)atoi(argv[2]), &e);
    if (!driver.store) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 2;
    }
    (void)fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    CHECK(loop_add(driver.loop, &driver.in, STDIN_FILENO, LOOP_IN | LOOP_LEVEL, on_input, &e) == 0);
    loop_run(driver.loop);
    loop_del(driver.loop, &driver.in);
    store_free(driver.store);
    loop_free(driver.loop);
    buf_done(&driver.input);
    return 0;
}
