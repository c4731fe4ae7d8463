/* bench: rg_common */
/* Reader, writer and scanner on texts such as agents and engines send; MB/s, best of several. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "common/codec/crc32c.h"
#include "common/codec/json_number.h"
#include "common/codec/json_scan.h"

#include "bench_clock.h"

struct input {
    struct buf text;
    struct buf out;
    struct arena arena;
    const struct json *tree;
};

/* A chat request of about 1 MB: code, prose, and as many escapes as JSON of code has. */
static void make_chat(struct input *in, bool cjk)
{
    struct json_out o = json_out_to(&in->text);

    json_out_obj(&o);
    json_out_key(&o, "model");
    json_out_cstr(&o, "m");
    json_out_key(&o, "messages");
    json_out_arr(&o);
    for (int i = 0; in->text.len < 1000000; i++) {
        struct buf content = {0};

        for (int line = 0; line < 120; line++)
            buf_puts(
                &content,
                cjk ? "\xe6\xb5\x8b\xe8\xaf\x95\xe6\x96\x87\xe6\x9c\xac\xef\xbc\x8c\xe5\xbe\x88"
                      "\xe9\x95\xbf\xe7\x9a\x84\xe4\xb8\xad\xe6\x96\x87\xe5\x86\x85\xe5\xae\xb9\n"
                    : "    return self.handlers[name](\"value\", count + 1)  # call it\n");
        json_out_obj(&o);
        json_out_key(&o, "role");
        json_out_cstr(&o, i % 2 ? "assistant" : "user");
        json_out_key(&o, "content");
        json_out_str(&o, buf_str(&content));
        json_out_end_obj(&o);
        buf_done(&content);
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
}

static uint32_t pick(void)
{
    static uint64_t rng = 88172645463325252u;

    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 32);
}

/* `comma` is "," or ", ", as different libraries write. */
static void make_ids(struct input *in, const char *comma)
{
    buf_puts(&in->text, "[");
    while (in->text.len < 1000000)
        buf_printf(&in->text, "%s%u", in->text.len > 1 ? comma : "", pick() % 152000);
    buf_puts(&in->text, "]");
}

/* float32 logprobs as engines print them: 16 to 17 digits. */
static void make_logprobs(struct input *in)
{
    struct json_out o = json_out_to(&in->text);

    json_out_arr(&o);
    while (in->text.len < 1000000)
        json_out_double(&o, (double)(-(float)(pick() % 1000000) / 300007.0F));
    json_out_end_arr(&o);
}

static void make_triples(struct input *in)
{
    struct json_out o = json_out_to(&in->text);

    json_out_arr(&o);
    while (in->text.len < 5000000) {
        json_out_arr(&o);
        json_out_double(&o, (double)(-(float)(pick() % 1000000) / 300007.0F));
        json_out_i64(&o, pick() % 152000);
        json_out_null(&o);
        json_out_end_arr(&o);
    }
    json_out_end_arr(&o);
}

static void parse(struct input *in)
{
    struct err e;

    arena_reset(&in->arena);
    CHECK(json_parse(&in->arena, buf_str(&in->text), &in->tree, &e) == 0);
}

static void write_back(struct input *in)
{
    buf_clear(&in->out);
    json_write(&in->out, in->tree);
}

static void utf8(struct input *in)
{
    CHECK(utf8_valid(buf_str(&in->text)));
}

static void crc(struct input *in)
{
    CHECK(crc32c(0, in->text.p, in->text.len) != 1);
}

enum { PIECE = 65536 };

/* Feeds pieces of 64 KB as a socket would, until the call is done. */
#define SCAN(in, call)                                                    \
    do {                                                                  \
        struct json_ints ids = {0};                                       \
        struct json_floats lps = {0};                                     \
        struct json_scan s;                                               \
        struct err e;                                                     \
        size_t at = 0;                                                    \
                                                                          \
        json_scan_init(&s, 4096);                                         \
        while ((call) == 0) {                                             \
            json_scan_feed(&s, str_sub(buf_str(&(in)->text), at, PIECE)); \
            at += PIECE;                                                  \
        }                                                                 \
        CHECK(ids.n + lps.n > 1000);                                      \
        vec_done(&ids);                                                   \
        vec_done(&lps);                                                   \
        json_scan_done(&s);                                               \
    } while (0)

static void scan_ints(struct input *in)
{
    SCAN(in, json_scan_ints(&s, 0, &ids, &e));
}

static void scan_ints_portable(struct input *in)
{
    SCAN(in, (s.wide = false, json_scan_ints(&s, 0, &ids, &e)));
}

static void scan_logprobs(struct input *in)
{
    SCAN(in, json_scan_floats(&s, 0, &lps, &e));
}

static void scan_logprobs_portable(struct input *in)
{
    SCAN(in, (s.wide = false, json_scan_floats(&s, 0, &lps, &e)));
}

static void scan_triples(struct input *in)
{
    SCAN(in, json_scan_triples(&s, 0, &lps, &ids, &e));
}

static void scan_triples_portable(struct input *in)
{
    SCAN(in, (s.wide = false, json_scan_triples(&s, 0, &lps, &ids, &e)));
}

static void scan_skip(struct input *in)
{
    struct json_scan s;
    struct err e;
    size_t at = 0;

    json_scan_init(&s, 4096);
    while (json_scan_skip(&s, &e) == 0) {
        json_scan_feed(&s, str_sub(buf_str(&in->text), at, PIECE));
        at += PIECE;
    }
    CHECK(s.at == s.end);
    json_scan_done(&s);
}

static void doubles(struct input *in)
{
    char out[JSON_DOUBLE_TEXT_MAX];
    size_t n = 0;

    for (size_t i = 0; i + 8 < in->text.len; i += 8)
        n += json_number_write(out, (double)((float)i / 300007.0F));
    CHECK(n > 0);
}

static void measure(const char *name, struct input *in, void (*fn)(struct input *in), int rounds)
{
    double best = 1e9;

    for (int i = 0; i < rounds; i++) {
        double start = clock_s(CLOCK_MONOTONIC), took;

        fn(in);
        took = clock_s(CLOCK_MONOTONIC) - start;
        best = took < best ? took : best;
    }
    printf("%-28s %8.0f MB/s  (%.2f MB, %.0f us)\n", name, (double)in->text.len / best / 1e6,
           (double)in->text.len / 1e6, best * 1e6);
}

static void done(struct input *in)
{
    buf_done(&in->text);
    buf_done(&in->out);
    arena_done(&in->arena);
}

int main(void)
{
    struct input chat = {0}, cjk = {0}, ids = {0}, spaced = {0}, logprobs = {0}, triples = {0};

    make_chat(&chat, false);
    make_chat(&cjk, true);
    make_ids(&ids, ",");
    make_ids(&spaced, ", ");
    make_logprobs(&logprobs);
    make_triples(&triples);
    measure("parse chat", &chat, parse, 50);
    measure("write chat", &chat, write_back, 50);
    measure("parse chat, Chinese", &cjk, parse, 50);
    measure("write chat, Chinese", &cjk, write_back, 50);
    measure("utf8, Chinese", &cjk, utf8, 50);
    measure("parse logprobs to a tree", &triples, parse, 10);
    measure("scan ids", &ids, scan_ints, 50);
    measure("scan ids, spaced", &spaced, scan_ints, 50);
    measure("scan ids, portable", &ids, scan_ints_portable, 50);
    measure("scan logprobs", &logprobs, scan_logprobs, 50);
    measure("scan logprobs, portable", &logprobs, scan_logprobs_portable, 50);
    measure("scan logprob triples", &triples, scan_triples, 20);
    measure("scan triples, portable", &triples, scan_triples_portable, 20);
    measure("skip logprob triples", &triples, scan_skip, 20);
    measure("crc32c", &triples, crc, 20);
    measure("write doubles (8 bytes each)", &ids, doubles, 5);
    done(&chat);
    done(&cjk);
    done(&ids);
    done(&spaced);
    done(&logprobs);
    done(&triples);
    return 0;
}
