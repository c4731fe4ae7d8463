/*
 * struct sampled_answer: one sampled answer while it comes: ids -> text -> stop strings -> parser
 * -> events, and what has come so far. Events go to one answer_sink as soon as they are certain;
 * the assistant message at the end is what the deltas spelled. Pure but for the sink: no engine, no
 * session, no clock.
 *
 * Of sampled control tokens a client sees nothing: special tokens are no text but where the parser
 * reads them as marks, and whatever ended the turn is none either. The ids keep them all.
 */
#ifndef RG_CALL_SAMPLED_ANSWER_H
#define RG_CALL_SAMPLED_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

struct answer_sink;
struct repeat_place;
struct arena;
struct detok;
struct json;
struct map;
struct parser;
struct parser_bytes;
struct parser_options;
struct stop_text;
struct stop_tree;
struct token_span;
struct tokenizer;

struct sampled_call {
    struct buf id, name, args;
    bool ended;
};

/* A seal of the thought (answer_sink.h), which came behind so many bytes of it. */
struct sampled_seal {
    struct str seal;
    size_t at;
    bool signs_text;
};

/* Fresh tool-call ids, unique in the session; writes a NUL-terminated text. */
typedef void (*sampled_call_id_fn)(void *ctx, char *out, size_t size);

struct sampled_answer_options {
    uint32_t index;
    const struct tokenizer *tokenizer;
    const int32_t *stop_ids; /* ids that end the turn: the model's and the request's, ascending */
    size_t n_stop_ids;
    const struct stop_tree *stops; /* or NULL */
    size_t min_tokens; /* stop strings that are complete within so many tokens are plain text */
    size_t
        max_calls; /* with more calls only the first ones are sent; 1: parallel_tool_calls: false */
    bool keep_special; /* special tokens are text, except those that end the turn: calls are not
                          read here, and their reader needs the marks */
    const struct parser_options *parser;
    const struct answer_sink *sink; /* gets text, reasoning, tool_* */
    void *sink_ctx;
    const struct json *history; /* the request's messages, or NULL: ids in it are taken */
    sampled_call_id_fn fresh_id;
    void *fresh_ctx;
};

struct sampled_answer {
    struct sampled_answer_options opt;
    struct detok *detok;
    struct parser *parser;
    struct stop_text *stop;
    struct buf piece, clean;           /* scratch */
    const struct parser_bytes *steady; /* bytes of the parser since its last feed: parser_steady */
    bool one_by_one;                   /* an id of plain text may end the turn */
    int32_t held_id;                   /* an id that may only end the turn; -1 */
    size_t fed;                        /* ids taken so far */
    size_t stop_at;                    /* ids through the end of the stop string; 0: none came */
    size_t ended_at;                   /* ids through the first stop id that more followed; 0 */
    struct buf text, reasoning, warning;
    struct sampled_call *calls;
    size_t n_calls, cap_calls;
    struct map *taken_ids; /* ids of the history's calls and of its own; NULL before a model names
                              one */
    bool all_taken;        /* there are too many of those ids to know them all */
    size_t withheld;       /* calls that were sampled but not sent: opt.max_calls */
    size_t overrun;        /* bytes of text, and calls, of an upstream after its stop string */
    bool thinking;         /* the last event was reasoning */
    /* What an upstream signed: {"message": {...}, "calls": [{...} or null, ...]}, members that its
     * message and its calls have besides; borrowed; or NULL. */
    const struct json *signed_members;
    struct arena *seals_arena; /* its own; NULL: no seal came */
    struct sampled_seal *seals;
    size_t n_seals, cap_seals;
    uint32_t reasoning_tokens;
};

/* Starts an answer. Data that the options point to is borrowed until sampled_answer_done. */
void sampled_answer_init(struct sampled_answer *a, const struct sampled_answer_options *o);
void sampled_answer_done(struct sampled_answer *a);

/* Feeds the next ids of the sample. */
void sampled_answer_feed(struct sampled_answer *a, struct token_span ids);

/* Gets all ids of the whole answer, including those fed before. Feeds the rest and decides about
 * held ids. end_id: the last id, if the engine says that it ended the turn, or -1. It is not text,
 * unless it was sent as text before. */
void sampled_answer_finish(struct sampled_answer *a, struct token_span all, int32_t end_id);

/* Feeds a message, for engines that return messages instead of ids (engine/wire/upstream_out.h). It
 * has content, reasoning_content, or a piece of a call, before which the last call is complete. Do
 * not use it together with the two above. Text goes on up to the end of its stop string; later text
 * is counted in `overrun` and dropped. With min_tokens no stop string is searched, since the number
 * of tokens is known from ids alone. */
void sampled_answer_feed_message(struct sampled_answer *a, const struct json *message);
void sampled_answer_end_messages(struct sampled_answer *a);

/* The stop string that ended it, or absent. */
struct str sampled_answer_stop(const struct sampled_answer *a);

/* Bytes of its text, thought and calls so far. */
size_t sampled_answer_bytes(const struct sampled_answer *a);

/* One more sentence of the call's parse_warning. */
void sampled_answer_warn(struct sampled_answer *a, struct str text);

/* Sends earlier events to a new sink, from `at` on (zeroed: the beginning), and moves `at`. Sends
 * at most *room units of REPEAT_UNIT bytes of text, and subtracts them. True: all was sent, and the
 * sink gets later events as they come. */
enum { REPEAT_UNIT = 64 };

bool sampled_answer_repeat(const struct sampled_answer *a, struct repeat_place *at, size_t *room,
                           const struct answer_sink *sink, void *ctx);

/* The assistant message in normalised form (chat.h); copies into the arena. */
const struct json *sampled_answer_message(const struct sampled_answer *a, struct arena *arena);

#endif
