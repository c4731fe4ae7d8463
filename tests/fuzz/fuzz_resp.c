/* fuzz: rg_common */
/* Replies of a store do not depend on how the stream is cut; the first byte chooses the cuts. */
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/fleet/redis_replies.h"
#include "common/fleet/resp.h"
#include "fuzz_cuts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Appends the kinds, numbers and texts of a reply. */
static void print_reply(const struct resp *r, struct buf *out)
{
    buf_printf(out, "%d,%zu,%lld,", (int)r->kind, r->n, (long long)r->number);
    buf_add_str(out, r->text);
    for (size_t i = 0; i < r->n; i++)
        print_reply(&r->items[i], out);
}

/* Reads the reply as an answer of each script. */
static void read_answers(struct arena *a, const struct resp *r)
{
    static const redis_reader readers[] = {
        redis_read_claim, redis_read_refusals, redis_read_lengths, redis_read_base,
        redis_read_texts, redis_read_log,      redis_read_edition, redis_read_renewal};
    struct store_entry entry;

    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        struct store_answer answer = {0};

        if (redis_read_verdict(r, &answer) && readers[i](a, r, &answer)) {
            CHECK(answer.n_texts == 0 || answer.texts[answer.n_texts - 1].p);
            CHECK(answer.n_refused == 0 ||
                  answer.refused[answer.n_refused - 1].verdict <= STORE_OVERTAKEN);
        }
    }
    redis_read_entry(a, r, &entry);
}

/* Reads the whole stream; each reply is a block of its own, so a byte too far is seen. */
static void read_stream(struct str text, size_t step, struct buf *out)
{
    struct resp_scan scan = {0};
    const struct resp *reply;
    struct buf in = {0};
    struct arena a = {0};
    struct err e = {0};
    int rc = 0;

    for (size_t at = 0; at < text.len && rc >= 0; at += step) {
        buf_add_str(&in, str_sub(text, at, step));
        while (in.len > 0 && (rc = resp_scan_reply(&scan, buf_str(&in), &e)) > 0) {
            char *exact = malloc(scan.at);

            CHECK(scan.at <= in.len && scan.items <= RESP_ITEMS_MAX);
            memcpy(exact, in.p, scan.at);
            reply = resp_read(&a, str_of(exact, scan.at));
            print_reply(reply, out);
            read_answers(&a, reply);
            arena_reset(&a);
            free(exact);
            buf_consume(&in, scan.at);
            scan = (struct resp_scan){0};
        }
    }
    buf_printf(out, rc < 0 ? "refused" : "open");
    buf_done(&in);
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_compare_cuts(data, size, read_stream);
    return 0;
}
