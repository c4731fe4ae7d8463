#include "worker/plane/api/known_bodies.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/codec/json.h"
#include "common/proc/config.h"
#include "testing.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/writers.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/dispatch.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/request_limits.h"

/* --- what is asked of others (see CMakeLists.txt) --- */

static _Atomic time_t ahead_s; /* added to clock_ms */
static bool is_here;           /* whether sessions exist */

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = __real_clock_gettime(id, t);

    t->tv_sec += ahead_s;
    return rc;
}

struct session *__wrap_session_find(struct session_store *st, struct str id, bool *ret_ended);

struct session *__wrap_session_find(struct session_store *st, struct str id, bool *ret_ended)
{
    static char any;

    (void)st;
    (void)id;
    *ret_ended = !is_here;
    return is_here ? (struct session *)(void *)&any : NULL;
}

bool __wrap_session_resident(const struct session *s);

bool __wrap_session_resident(const struct session *s)
{
    return s != NULL;
}

static const struct json *stored; /* messages of the session; NULL: none */
static unsigned content;          /* grows when the session is evicted and read back */
static unsigned holds[2];         /* number of holds on each content */

const struct json *__wrap_session_walked_messages(const struct session *s, uint64_t reading,
                                                  struct arena *a);

const struct json *__wrap_session_walked_messages(const struct session *s, uint64_t reading,
                                                  struct arena *a)
{
    (void)s;
    (void)reading;
    (void)a;
    return stored;
}

void *__wrap_session_hold_messages(struct session *s);

void *__wrap_session_hold_messages(struct session *s)
{
    (void)s;
    holds[content]++;
    return &holds[content];
}

void __wrap_session_release_messages(void *held);

void __wrap_session_release_messages(void *held)
{
    (*(unsigned *)held)--;
}

bool __wrap_session_has_messages(const struct session *s, const void *held);

bool __wrap_session_has_messages(const struct session *s, const void *held)
{
    (void)s;
    return held == &holds[content];
}

/* --- a worker's part that knows bodies --- */

struct rig {
    struct service service;
    struct config config;
    struct residency residency;
};

static void begin(struct rig *r)
{
    *r = (struct rig){0};
    r->config.known_bodies_memory = 1 << 20;
    r->service.config = &r->config;
    r->service.calls.residency = &r->residency;
}

static void end(struct rig *r)
{
    dispatch_done(&r->service);
}

/* --- a request's reading, as api_call_body.c does it --- */

struct request {
    struct arena arena;
    const struct json *body;
    struct chat_request req;
    struct err err;
    int rc;
    uint64_t hash[2];
    struct buf written; /* the JSON after reading */
};

static void write_request(const struct request *q, struct buf *b)
{
    if (q->rc || !q->body)
        return;
    json_write(b, q->body);
    json_write(b, q->req.chat->messages);
}

static int parse(struct request *q, const struct body_text *text, struct known_reading *k)
{
    struct dialect_past past = {.known = NULL};

    if (k ? known_reading_parse(k, &q->arena, text, &q->body, &q->err)
          : json_parse_replacing(&q->arena, text->whole, &q->body, &q->err))
        return -1;
    if (!json_is(q->body, JSON_OBJECT))
        return err_set(&q->err, ERR_INVALID, "no object");
    past.known = k ? known_reading_messages(k) : NULL;
    q->rc = dialect_chat.parse(&q->arena, q->body, NULL, &past, &q->req, &q->err);
    if (arena_over(&q->arena))
        return err_set(&q->err, ERR_BODY_TOO_LARGE, "too large");
    return q->rc;
}

static void same_hash(const struct hash128 *known, struct str body)
{
    struct hash128 on = *known;
    uint64_t whole[2], hash[2];

    str_hash128(body, whole);
    hash128_end(&on, body, hash);
    cr_assert(whole[0] == hash[0] && whole[1] == hash[1]);
}

/* Reads a request from the known body `k`; NULL: from the start. */
static void read_request(struct request *q, struct str body, size_t max_bytes,
                         struct known_reading *k)
{
    struct body_text text;

    *q = (struct request){.arena.max_bytes = max_bytes};
    if (k) {
        same_hash(known_reading_hashed(k, &dialect_chat, body), body);
        known_reading_begin(k, &dialect_chat, body, &q->arena, &text);
    } else {
        text = (struct body_text){.whole = arena_str(&q->arena, body)};
        text.tail = text.whole;
    }
    q->rc = parse(q, &text, k);
    if (q->rc == 0)
        request_hash(&text, q->body, q->hash);
    if (k)
        known_reading_end(k, body, q->rc == 0 && q->req.n_shown == 0);
    write_request(q, &q->written);
}

/* Checks that values from the known body are unchanged, whatever used them meanwhile. */
static void done(struct request *q)
{
    struct buf now = {0};

    write_request(q, &now);
    cr_assert(str_eq(buf_str(&now), buf_str(&q->written)));
    buf_done(&now);
    buf_done(&q->written);
    arena_done(&q->arena);
}

static void same(const struct request *whole, const struct request *known)
{
    cr_assert_eq(whole->rc, known->rc, "%s / %s", whole->err.text, known->err.text);
    cr_assert(str_eq(str_cstr(whole->err.text), str_cstr(known->err.text)), "%s / %s",
              whole->err.text, known->err.text);
    cr_assert(str_eq(str_cstr(whole->err.param), str_cstr(known->err.param)));
    cr_assert(str_eq(buf_str(&whole->written), buf_str(&known->written)));
    cr_assert(whole->rc != 0 || whole->arena.used_bytes == known->arena.used_bytes);
    cr_assert(whole->hash[0] == known->hash[0] && whole->hash[1] == known->hash[1]);
}

/* Plays a request of the session. It is remembered unless `refused` after reading. Returns false if
 * it was read from the start. */
static bool turn(struct rig *r, const char *id, struct str body, bool refused)
{
    bool ended;
    struct known_reading *k =
        known_bodies_look(&r->service, str_cstr(id),
                          stored ? session_find(NULL, str_cstr(id), &ended) : NULL, body.len);
    struct request q;

    if (!k)
        return false;
    read_request(&q, body, 0, k);
    cr_assert_eq(q.rc, 0, "%s", q.err.text);
    if (!refused)
        known_bodies_note(&r->service, str_cstr(id), k);
    known_reading_free(k);
    done(&q);
    return true;
}

/* Appends n messages of `bytes` bytes. */
static void say(struct buf *b, unsigned n, size_t bytes)
{
    buf_puts(b, "{\"messages\":[");
    for (unsigned i = 0; i < n; i++) {
        buf_puts(b, i ? ",{\"role\":\"user\",\"content\":\"" : "{\"role\":\"user\",\"content\":\"");
        for (size_t k = 0; k < bytes; k++)
            buf_add_c(b, 'x');
        buf_puts(b, "\"}");
    }
    buf_puts(b, "],\"model\":\"m\"}");
}

/* --- what stays --- */

TEST(known_bodies, growth_of_refused_requests_counts)
{
    struct rig r;
    struct buf first = {0}, longer = {0};

    begin(&r);
    is_here = true;
    say(&first, 2, 20000);
    say(&longer, 100, 20000);
    cr_assert(turn(&r, "w0-1", buf_str(&first), false));
    cr_assert(turn(&r, "w0-1", buf_str(&longer), true)); /* two more megabytes */
    dispatch_sweep(&r.service);
    cr_assert_leq(dispatch_held_bytes(&r.service), 1 << 20);
    buf_done(&first);
    buf_done(&longer);
    end(&r);
}

TEST(known_bodies, a_lower_limit_is_obeyed_without_a_request)
{
    struct rig r;
    struct buf body = {0};

    begin(&r);
    is_here = true;
    say(&body, 2, 20000);
    cr_assert(turn(&r, "w0-1", buf_str(&body), false));
    dispatch_sweep(&r.service);
    cr_assert_gt(dispatch_held_bytes(&r.service), 0);
    r.config.known_bodies_memory = 0;
    dispatch_sweep(&r.service);
    cr_assert_eq(dispatch_held_bytes(&r.service), 0);
    buf_done(&body);
    end(&r);
}

TEST(known_bodies, sessions_that_left_leave_nothing)
{
    struct rig r;
    struct buf body = {0};

    begin(&r);
    is_here = true;
    say(&body, 2, 20000);
    cr_assert(turn(&r, "w0-1", buf_str(&body), false));
    dispatch_sweep(&r.service);
    cr_assert_gt(dispatch_held_bytes(&r.service), 0);
    is_here = false;
    dispatch_sweep(&r.service);
    cr_assert_eq(dispatch_held_bytes(&r.service), 0);
    buf_done(&body);
    end(&r);
}

/* A session that is evicted and read back between two sweeps has other messages. */
TEST(known_bodies, messages_from_before_an_eviction_are_not_kept)
{
    struct rig r;
    struct buf first = {0}, longer = {0};
    struct request q;

    begin(&r);
    is_here = true;
    say(&first, 2, 20000);
    say(&longer, 6, 20000);
    read_request(&q, buf_str(&first), 0, NULL);
    cr_assert_eq(q.rc, 0);
    cr_assert(turn(&r, "w0-1", buf_str(&first), false));
    stored = q.req.chat->messages;
    cr_assert(turn(&r, "w0-1", buf_str(&longer), false));
    cr_assert_eq(holds[0], 1);
    dispatch_sweep(&r.service);
    cr_assert_eq(holds[0], 1);
    content++;
    dispatch_sweep(&r.service);
    cr_assert_eq(holds[0], 0);
    cr_assert_eq(dispatch_held_bytes(&r.service), 0);
    cr_assert(turn(&r, "w0-1", buf_str(&first), false));
    cr_assert(turn(&r, "w0-1", buf_str(&longer), false));
    content--; /* as if it was evicted right before a request */
    cr_assert_eq(holds[1], 1);
    cr_assert(turn(&r, "w0-1", buf_str(&longer), false));
    cr_assert_eq(holds[1], 0);
    stored = NULL;
    done(&q);
    buf_done(&first);
    buf_done(&longer);
    end(&r);
}

TEST(known_bodies, what_does_not_fit_alone_pushes_nobody_out)
{
    struct rig r;
    struct buf small = {0}, huge = {0};
    size_t held;

    begin(&r);
    say(&small, 2, 20000);
    say(&huge, 2, 1 << 20);
    cr_assert(turn(&r, "w0-1", buf_str(&small), false));
    held = dispatch_held_bytes(&r.service);
    ahead_s += 60; /* time passes */
    cr_assert(!turn(&r, "w0-2", buf_str(&huge), false));
    cr_assert_eq(dispatch_held_bytes(&r.service), held);
    ahead_s = 0;
    buf_done(&small);
    buf_done(&huge);
    end(&r);
}

TEST(known_bodies, who_asks_the_same_again_does_not_rest)
{
    struct rig r;
    struct buf body = {0};

    begin(&r);
    r.config.known_bodies_memory = 200 << 10;
    say(&body, 2, 30000);
    cr_assert(turn(&r, "w0-1", buf_str(&body), false));
    ahead_s += 20;
    cr_assert(turn(&r, "w0-1", buf_str(&body), false));
    ahead_s += 20; /* more than REST_MS after it was first known */
    cr_assert(!turn(&r, "w0-2", buf_str(&body), false));
    ahead_s += 20;
    cr_assert(turn(&r, "w0-2", buf_str(&body), false));
    ahead_s = 0;
    buf_done(&body);
    end(&r);
}

/* --- the same as whole, at random --- */

enum { KEPT = 5, SESSIONS = 3, BODIES = 1500 };

static unsigned pick(unsigned *seed, unsigned n)
{
    return (unsigned)rand_r(seed) % n;
}

static const char *const pieces[] = {
    "{\"role\":\"user\",\"content\":\"hello\"}",
    ",{\"role\":\"assistant\",\"content\":\"he said \\\"so\\\"\"}",
    ", {\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\\n\"},{\"type\":\"text\","
    "\"text\":\"b\"}]}",
    ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"function\":{"
    "\"name\":"
    "\"f\",\"arguments\":{\"a\":[1,12,1.50,1e3]}}},{\"id\":\"d\",\"function\":{\"name\":\"f\","
    "\"arguments\":\"{}\"}}]}",
    "\n,\t{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"\\ud83d\\ude00 "
    "\\ud800\",\"name\":\"n"
    "\"} ",
    ",{\"role\":\"user\",\"role\":\"system\",\"content\":\"\xc3\xa9\xf0\x9f\x98\x80\",\"x\":{\"y\":"
    "[[]"
    "]}}",
    ",{}",
    ",{\"role\":\"who\",\"content\":\"x\"}",
    ",{\"role\":\"user\"}",
    ",7",
    ",[{\"role\":\"user\",\"content\":\"x\"}]",
    ",{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":{\"name\":\"f\",\"arguments\":"
    "\"1\"}}",
    ",",
    "]",
    "\xff",
    "}",
};

static const char *const fronts[] = {
    "{\"messages\":[",
    "{ \"stream\" : true, \"model\":\"\\u006d\",\"messages\" : [ ",
    "{\"messages\":[{}],\"messages\":[",
    "{\"messages\":3,\"model\":\"m\",\"mess\\u0061ges\":[",
    "{\"temperature\":0.25,\"temperature\":1,\"stream_options\":{},\"messages\":[",
};

static const char *const ends[] = {
    "]}",
    "],\"model\":\"m\"}",
    "] , \"stream\" : false } ",
    "],\"messages\":[{\"role\":\"user\",\"content\":\"another\"}]}",
    "],\"messages\":7}",
    "],\"mess\\u0061ges\":[]}",
    "],\"temperature\":\"hot\"}",
    "],\"model\":\"a\",\"model\":\"b\\t\",\"seed\":12}",
    "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\":1}}}]}",
    "]} {}",
    "],\"x\":\"\xc3",
    "],\"x\":1",
    "]",
    "",
};

struct talk {
    struct buf text; /* text of a body, up to a position in its list */
    size_t ends[64]; /* ends of its pieces */
    unsigned n;
};

/* Extends the talk, or goes back and continues differently. */
static void grow(struct talk *t, unsigned *seed)
{
    if (t->n > 60 || pick(seed, 30) == 0) {
        t->text.len = 0;
        t->n = 0;
    }
    if (t->n == 0) {
        buf_puts(&t->text, fronts[pick(seed, ARRAY_LEN(fronts))]);
        t->ends[t->n++] = t->text.len;
        buf_puts(&t->text, pieces[0]);
        t->ends[t->n++] = t->text.len;
    }
    if (t->n > 2 && pick(seed, 4) == 0) {
        t->n = 1 + pick(seed, t->n - 1);
        t->text.len = t->ends[t->n - 1];
    }
    for (unsigned more = pick(seed, 3) + (t->n == 1); more > 0; more--) {
        unsigned n = pick(seed, 12) ? 6 : ARRAY_LEN(pieces); /* errors are rare */

        buf_puts(&t->text, t->n == 1 ? pieces[0] : pieces[1 + pick(seed, n - 1)]);
        t->ends[t->n++] = t->text.len;
    }
}

/* Compares with reading from the start. Reports whether the known body had parsed messages. */
static bool compare(struct rig *r, struct str body, size_t max_bytes, const char *id,
                    struct request *known)
{
    bool had = false;
    struct known_reading *k = known_bodies_look(&r->service, str_cstr(id), NULL, body.len);
    struct request whole;

    read_request(&whole, body, max_bytes, NULL);
    read_request(known, body, max_bytes, k);
    same(&whole, known);
    if (k && known->rc == 0) {
        had = known_reading_messages(k) != NULL;
        known_bodies_note(&r->service, str_cstr(id), k);
    }
    known_reading_free(k);
    done(&whole);
    return had;
}

TEST(known_bodies, random_bodies_read_as_whole_ones)
{
    static const char *const ids[SESSIONS] = {"w0-1", "w0-2", "w0-3"};
    unsigned seed = (unsigned)time(NULL), n_known = 0;
    struct talk talks[SESSIONS] = {0};
    struct request kept[KEPT] = {0};
    struct rig r;

    (void)fprintf(stderr, "seed %u\n", seed);
    begin(&r);
    for (unsigned i = 0; i < BODIES; i++) {
        unsigned who = pick(&seed, SESSIONS), at = i % KEPT;
        struct buf body = {0};
        size_t max_bytes = pick(&seed, 3) ? 0 : 500 + pick(&seed, 20000);

        done(&kept[at]);
        grow(&talks[who], &seed);
        buf_add_str(&body, buf_str(&talks[who].text));
        buf_puts(&body, ends[pick(&seed, 3) ? pick(&seed, 3) : pick(&seed, ARRAY_LEN(ends))]);
        n_known += compare(&r, buf_str(&body), max_bytes, ids[who], &kept[at]);
        buf_done(&body);
        if (pick(&seed, 100) == 0)
            dispatch_sweep(&r.service); /* no session exists */
    }
    cr_assert_gt(n_known, BODIES / 10);
    for (unsigned i = 0; i < KEPT; i++)
        done(&kept[i]);
    for (unsigned i = 0; i < SESSIONS; i++)
        buf_done(&talks[i].text);
    end(&r);
}

/* --- readings beside each other --- */

enum { THREADS = 4, ROUNDS = 60 };

struct side {
    pthread_t thread;
    struct known_reading *known;
    struct buf text;
    struct request whole, got;
};

static void *read_side(void *ctx)
{
    struct side *s = ctx;

    read_request(&s->whole, buf_str(&s->text), 0, NULL);
    read_request(&s->got, buf_str(&s->text), 0, s->known);
    return NULL;
}

static void start_side(struct rig *r, struct side *s, const struct buf *text, const char *more)
{
    buf_add_str(&s->text, buf_str(text));
    buf_puts(&s->text, more);
    buf_puts(&s->text, "]}");
    s->known = known_bodies_look(&r->service, STR("w0-1"), NULL, s->text.len);
    cr_assert(s->known);
    cr_assert_eq(pthread_create(&s->thread, NULL, read_side, s), 0);
}

static void join_side(struct rig *r, struct side *s)
{
    cr_assert_eq(pthread_join(s->thread, NULL), 0);
    known_bodies_note(&r->service, STR("w0-1"), s->known);
    known_reading_free(s->known);
}

static void done_side(struct side *s)
{
    same(&s->whole, &s->got);
    done(&s->whole);
    done(&s->got);
    buf_done(&s->text);
}

/* Requests of one session are read at the same time, while its table drops bodies that they use.
 * Their memory is freed in any order. */
TEST(known_bodies, threads_read_of_one_session)
{
    struct rig r;
    struct buf text = {0};

    begin(&r);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct side sides[THREADS] = {0};

        if (round % 20 == 0) {
            text.len = 0;
            buf_puts(&text, "{\"messages\":[");
            buf_puts(&text, pieces[0]);
        }
        buf_puts(&text, pieces[1 + round % 5]);
        for (unsigned i = 0; i < THREADS; i++)
            start_side(&r, &sides[i], &text, i % 2 ? pieces[1 + i] : "");
        if (round % 7 == 6)
            dispatch_sweep(&r.service);
        for (unsigned i = 0; i < THREADS; i++)
            join_side(&r, &sides[i]);
        for (unsigned i = 0; i < THREADS; i++)
            done_side(&sides[i]);
    }
    buf_done(&text);
    end(&r);
}
