/* bench: rg_tokens */
/*
 * Encoding and decoding speed of one tokenizer, as one JSON object on stdout:
 *     bench_tokens TOKENIZER.json TEXT [WORKERS]
 * TEXT is encoded whole and as messages of about 500 bytes; times are CPU time, each figure is the
 * best of several rounds. With WORKERS, that many forked children encode everything, and the
 * private memory that each came to own is told (Private_Clean + Private_Dirty of smaps_rollup, less
 * that of a child that did nothing). Texts that are hard to encode have a speed each.
 * tests/bench/tokens.py runs it beside the reference libraries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_clock.h"
#include "common/base/vec.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

enum { ROUNDS = 7, MESSAGE_BYTES = 500, MESSAGES_MAX = 2000, HOSTILE_BYTES = 500000 };

struct messages {
    struct str *at;
    size_t n, cap;
    size_t bytes;
};

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f) {
        perror(path);
        exit(1);
    }
    while ((n = fread(buf_reserve(out, 1 << 16), 1, 1 << 16, f)) > 0)
        out->len += n;
    fclose(f);
}

/* Cuts at character boundaries, round and round the text. */
static void cut(struct str text, struct messages *m)
{
    size_t at = 0;

    while (m->n < MESSAGES_MAX && text.len > MESSAGE_BYTES) {
        size_t end = at + MESSAGE_BYTES;

        if (end > text.len) {
            at = 0;
            continue;
        }
        while (end < text.len && ((unsigned char)text.p[end] & 0xc0) == 0x80)
            end++;
        *vec_push(m) = str_sub(text, at, end - at);
        m->bytes += end - at;
        at = end;
    }
}

static void encode(struct encoder *enc, struct str text, struct token_vec *ids)
{
    struct err e;

    if (encoder_encode(enc, text, false, ids, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
}

static double time_whole(struct encoder *enc, struct str text, struct token_vec *ids)
{
    double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);

    vec_clear(ids);
    encode(enc, text, ids);
    return clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static double time_messages(struct encoder *enc, const struct messages *m, struct token_vec *ids)
{
    double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);

    for (size_t i = 0; i < m->n; i++) {
        vec_clear(ids);
        encode(enc, m->at[i], ids);
    }
    return clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static double time_decode(const struct tokenizer *t, const struct token_vec *ids)
{
    double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    struct buf out = {0};

    tokenizer_decode(t, ids->at, ids->n, false, &out);
    buf_done(&out);
    return clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static double time_detok(const struct tokenizer *t, const struct token_vec *ids)
{
    struct detok *d = detok_new(t, false);
    struct buf out = {0};
    double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);

    for (size_t i = 0; i < ids->n; i++) {
        buf_clear(&out);
        detok_feed(d, ids->at[i], &out);
    }
    detok_finish(d, &out);
    start = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
    buf_done(&out);
    detok_free(d);
    return start;
}

static void print_speeds(const struct tokenizer *t, struct str text, const struct messages *m)
{
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = {0};
    double whole = 1e9, messages = 1e9, decode = 1e9, detok = 1e9, cold;

    cold = time_whole(enc, text, &ids);
    for (int i = 0; i < ROUNDS; i++) {
        whole = MIN_OF(whole, time_whole(enc, text, &ids));
        decode = MIN_OF(decode, time_decode(t, &ids));
        detok = MIN_OF(detok, time_detok(t, &ids));
        messages = MIN_OF(messages, time_messages(enc, m, &ids));
    }
    encode(enc, text, &ids);
    printf("\"text_bytes\":%zu,\"messages\":%zu,\"encode_cold_mb_s\":%.1f,"
           "\"encode_mb_s\":%.1f,\"messages_mb_s\":%.1f,\"decode_mb_s\":%.1f,"
           "\"detok_mb_s\":%.1f",
           text.len, m->n, (double)text.len / cold / 1e6, (double)text.len / whole / 1e6,
           (double)m->bytes / messages / 1e6, (double)text.len / decode / 1e6,
           (double)text.len / detok / 1e6);
    vec_done(&ids);
    encoder_free(enc);
}

/* One word of 25,000 to 100,000 random letters: time per letter should hardly grow. */
static void print_long_words(const struct tokenizer *t)
{
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = {0};
    struct buf text = {0};
    unsigned state = 1;

    printf(",\"long_word_ns_per_letter\":{");
    for (size_t n = 25000; n <= 100000; n *= 2) {
        double low = 1e9;

        while (text.len < n) {
            state = state * 1664525u + 1013904223u;
            buf_add_c(&text, (char)('a' + (state >> 8) % 26));
        }
        for (int i = 0; i < 3; i++)
            low = MIN_OF(low, time_whole(enc, buf_str(&text), &ids));
        printf("%s\"%zu\":%.0f", n == 25000 ? "" : ",", n, low / (double)n * 1e9);
    }
    printf("}");
    buf_done(&text);
    vec_done(&ids);
    encoder_free(enc);
}

/* Texts as who wants to keep a worker busy would send them: one word, or words that no cache knows.
 */
static void print_hostile(const struct tokenizer *t)
{
    static const struct {
        const char *name;
        struct str drawn;
    } kinds[] = {
        {"letters", STR("abcdefghijklmnopqrstuvwxyz")},
        {"capitals", STR("ABCDEFGHIJKLMNOPQRSTUVWXYZ")},
        {"punctuation", STR("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~")},
        {"digits", STR("0123456789")},
        {"two_letters", STR("ab")},
        {"one_sign", STR("!")},
        {"spaces", STR(" ")},
        {"lines", STR("\n")},
        {"blanks", STR(" \t\r\n")},
        {"short_words", STR("abcdefghijklmnopqrstuvwxyz    ")},
    };
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = {0};
    struct buf text = {0};
    unsigned state = 1;

    printf(",\"hostile_mb_s\":{");
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        double low = 1e9;

        buf_clear(&text);
        while (text.len < HOSTILE_BYTES) {
            state = state * 1664525u + 1013904223u;
            buf_add_c(&text, kinds[k].drawn.p[(state >> 8) % kinds[k].drawn.len]);
        }
        for (int i = 0; i < 3; i++)
            low = MIN_OF(low, time_whole(enc, buf_str(&text), &ids));
        printf("%s\"%s\":%.1f", k ? "," : "", kinds[k].name, HOSTILE_BYTES / low / 1e6);
    }
    printf("}");
    buf_done(&text);
    vec_done(&ids);
    encoder_free(enc);
}

static long private_kb(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long sum = 0;

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "Private_Clean:", 14) == 0 || strncmp(line, "Private_Dirty:", 14) == 0)
            sum += strtol(line + 14, NULL, 10);
    if (f)
        fclose(f);
    return sum;
}

static void work(const struct tokenizer *t, struct str text, const struct messages *m)
{
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = {0};

    encode(enc, text, &ids);
    time_messages(enc, m, &ids);
}

/* Children stay until all have measured, so that what they share counts as shared. */
static void print_memory(const struct tokenizer *t, struct str text, const struct messages *m,
                         int workers)
{
    int report[2], go[2];
    long kb, most = 0, idle = 0;

    if (pipe(report) < 0 || pipe(go) < 0)
        exit(1);
    fflush(stdout);
    for (int i = 0; i <= workers; i++) {
        if (fork() == 0) {
            char c;

            if (i > 0)
                work(t, text, m);
            kb = private_kb();
            close(go[1]);
            if (write(report[1], &kb, sizeof(kb)) < 0)
                _exit(1);
            _exit(read(go[0], &c, 1) < 0 ? 1 : 0);
        }
        if (read(report[0], &kb, sizeof(kb)) != sizeof(kb))
            exit(1);
        if (i == 0)
            idle = kb;
        else if (kb - idle > most)
            most = kb - idle;
    }
    close(go[1]);
    while (wait(NULL) > 0)
        ;
    printf(",\"workers\":%d,\"private_kb_per_worker\":%ld", workers, most);
}

int main(int argc, char **argv)
{
    struct messages m = {0};
    struct buf text = {0};
    struct tokenizer *t;
    struct err e;
    double start, load = 1e9;

    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokens TOKENIZER.json TEXT [WORKERS]\n");
        return 2;
    }
    read_file(argv[2], &text);
    cut(buf_str(&text), &m);
    for (int i = 0; i < 3; i++) {
        start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        if (tokenizer_load(argv[1], &t, &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        load = MIN_OF(load, clock_s(CLOCK_PROCESS_CPUTIME_ID) - start);
        if (i < 2)
            tokenizer_free(t);
    }
    printf("{\"load_ms\":%.1f,", load * 1e3);
    print_speeds(t, buf_str(&text), &m);
    print_long_words(t);
    print_hostile(t);
    if (argc > 3)
        print_memory(t, buf_str(&text), &m, (int)strtol(argv[3], NULL, 10));
    printf("}\n");
    tokenizer_free(t);
    buf_done(&text);
    vec_done(&m);
    return 0;
}
