/* bench: rg_worker */
/*
 * Building the next turn's ids behind a checkpoint: bench_suffix [MODEL_DIR]
 * For histories of growing length prints the CPU microseconds of the best model_suffix (one tool
 * result of 500 bytes is new), beside those of a full render and encode.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench_clock.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat.h"

static void write_text(struct json_out *o, size_t bytes, unsigned seed)
{
    static const char *const words[] = {"the ",   "file ", "has ",   "been ",
                                        "read, ", "\n",    "x = 1; "};
    struct buf text = {0};

    while (text.len < bytes)
        buf_puts(&text, words[seed++ * 5 % ARRAY_LEN(words)]);
    json_out_str(o, buf_str(&text));
    buf_done(&text);
}

/* user, then calls and results in turn. */
static void write_messages(struct buf *b, unsigned n)
{
    struct json_out o = json_out_to(b);

    json_out_arr(&o);
    for (unsigned i = 0; i < n; i++) {
        json_out_obj(&o);
        json_out_key(&o, "role");
        json_out_cstr(&o, i == 0 ? "user" : i % 2 ? "assistant" : "tool");
        json_out_key(&o, "content");
        write_text(&o, 500, i);
        if (i % 2) {
            json_out_key(&o, "tool_calls");
            json_out_raw(&o, STR("[{\"id\":\"call_0001\",\"type\":\"function\",\"function\":{"
                                 "\"name\":\"read\",\"arguments\":\"{\\\"p\\\": 1}\"}}]"));
        } else if (i) {
            json_out_key(&o, "tool_call_id");
            json_out_cstr(&o, "call_0001");
        }
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
}

static double best_suffix(const struct model *m, struct model_scratch *s, const struct chat *chat)
{
    struct model_tail tail = {0};
    double best = 1e18;

    tail.last = (struct token_span){model_info(m)->stop_ids, 1};
    for (int round = 0; round < 200; round++) {
        struct model_suffix x = {0};
        double start = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID), us;
        struct err e;

        if (model_suffix(m, s, chat, chat->messages->n - 1, &tail, &x, &e) != 0) {
            (void)fprintf(stderr, "%s\n", e.text);
            exit(1);
        }
        us = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
        best = us < best ? us : best;
        vec_done(&x.ids);
    }
    return best;
}

static void one(const struct model *m, struct model_scratch *s, unsigned n)
{
    const struct json *messages = NULL;
    struct token_vec ids = {0};
    struct arena a = {0};
    struct buf text = {0};
    struct chat chat = {0};
    double suffix, start, full;
    struct err e;

    write_messages(&text, n);
    if (json_parse(&a, buf_str(&text), &messages, &e) != 0)
        exit(1);
    chat.messages = messages;
    suffix = best_suffix(m, s, &chat);
    start = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID);
    (void)model_prompt(m, s, &chat, &ids, &e);
    full = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
    printf("%6u messages %8zu tokens: suffix %7.1f us, full %9.1f us\n", n, ids.n, suffix, full);
    vec_done(&ids);
    buf_done(&text);
    arena_done(&a);
}

int main(int argc, char **argv)
{
    struct model_options o = {.dir = argc > 1 ? argv[1] : NULL};
    struct model_scratch *s;
    struct model *m;
    struct err e;

    if (model_load(&o, &m, &e) != 0) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    s = model_scratch_new(m);
    for (unsigned n = 3; n < 3000; n = n * 3 | 1)
        one(m, s, n);
    model_scratch_free(s);
    model_free(m);
    return 0;
}
