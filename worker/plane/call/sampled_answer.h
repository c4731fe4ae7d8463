/*
 * struct sampled_answer: one sampled answer while it arrives: ids -> text -> stop strings -> parser
 * -> events, and everything that arrived so far. Events are sent to one answer_sink as soon as they
 * are certain. The assistant message at the end is the sum of the deltas. Pure except for the sink:
 * uses no engine, session or clock.
 *
 * A client sees no sampled control tokens: special tokens become text only for the parser, which
 * reads them as marks, and the id or string that ended the turn is never text. The ids keep all of
 * them.
 */
#ifndef RG_CALL_SAMPLED_ANSWER_H
#define RG_CALL_SAMPLED_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"
#include "worker/plane/call/stop_text.h"

struct answer_sink;
struct repeat_place;
struct arena;
struct detok;
struct json;
struct map;
struct parser;
struct parser_bytes;
struct parser_options;
struct stop_tree;
struct token_span;
struct tokenizer;

struct sampled_call {
    struct buf id, name, args;
    bool ended;
};

/* A seal of the thought (answer_sink.h), and the number of bytes of the thought before it. */
struct sampled_seal {
    struct str seal;
    size_t at;
    bool signs_text;
};

/* Makes a new tool-call id, unique in the session, and writes it as a NUL-terminated string. */
typedef void (*sampled_call_id_fn)(void *ctx, char *out, size_t size);

struct sampled_answer_options {
    uint32_t index;
    const struct tokenizer *tokenizer;
    const int32_t *stop_ids; /* ids that end the turn, of the model and of the request, ascending */
    size_t n_stop_ids;
    const struct stop_tree *stops; /* stop strings, or NULL */
    size_t min_tokens; /* a stop string that is complete within so many tokens is plain text */
    size_t max_calls;  /* number of tool calls that are sent, further ones are withheld; 1 with
                          parallel_tool_calls: false */
    /* special tokens are text, except those that end the turn: set when tool calls are not
     * parsed here, and their reader needs the marks */
    bool keep_special;
    const struct parser_options *parser;
    const struct answer_sink *sink; /* receives text, reasoning, tool_* */
    void *sink_ctx;
    /* messages of the request, whose tool-call ids are taken; or NULL */
    const struct json *history;
    sampled_call_id_fn fresh_id;
    void *fresh_ctx;
};

struct sampled_answer {
    struct sampled_answer_options opt;
    struct detok *detok;
    struct parser *parser;
    struct stop_text stop;
    struct buf piece, clean; /* scratch buffers */
    /* what parser_steady returned after the parser's last feed */
    const struct parser_bytes *steady;
    /* an id of plain text may end the turn, so each id is fed alone */
    bool one_by_one;
    /* an id that is held back because it may end the turn; -1: none */
    int32_t held_id;
    size_t fed; /* number of ids fed so far */
    /* number of ids up to the end of the stop string; 0: none was found */
    size_t stop_at;
    /* number of ids up to the first stop id that more ids followed; 0: none */
    size_t ended_at;
    struct buf text, reasoning, warning;
    struct sampled_call *calls;
    size_t n_calls, cap_calls;
    /* tool-call ids of the history and of this answer; NULL until a model names one */
    struct map *taken_ids;
    bool all_taken;  /* there are too many such ids, so every id counts as taken */
    size_t withheld; /* tool calls that were sampled but not sent because of opt.max_calls */
    /* bytes of text, and tool calls, that an upstream sent after its stop string */
    size_t overrun;
    bool thinking; /* the last event was reasoning */
    /* Members of an upstream's message and tool calls that it signed: {"message": {...}, "calls":
     * [{...} or null, ...]}; borrowed; or NULL. */
    const struct json *signed_members;
    struct arena *seals_arena; /* arena of the seals, own; NULL: no seal has arrived */
    struct sampled_seal *seals;
    size_t n_seals, cap_seals;
    uint32_t reasoning_tokens;
};

/* Starts an answer. Data that the options point to is borrowed until sampled_answer_done. */
void sampled_answer_init(struct sampled_answer *a, const struct sampled_answer_options *o);
void sampled_answer_done(struct sampled_answer *a);

/* Feeds the next ids of the sample. */
void sampled_answer_feed(struct sampled_answer *a, struct token_span ids);

/* Ends the answer. Gets all ids, including those fed before; feeds the rest and decides about held
 * ids. end_id is the last id if the engine says that it ended the turn, else -1. It does not become
 * text, unless it was sent as text before. */
void sampled_answer_finish(struct sampled_answer *a, struct token_span all, int32_t end_id);

/* Feeds a message, for engines that return messages instead of ids (engine/wire/upstream_out.h).
 * The message has content, reasoning_content, or a piece of a tool call; a new tool call completes
 * the previous one. Must not be combined with the two functions above. Text is sent up to the end
 * of its stop string; later text is counted in `overrun` and dropped. With min_tokens no stop
 * string is searched, because the number of tokens is known from ids alone. */
void sampled_answer_feed_message(struct sampled_answer *a, const struct json *message);
void sampled_answer_end_messages(struct sampled_answer *a);

/* Returns the stop string that ended the answer. Absent if none did. */
struct str sampled_answer_stop(const struct sampled_answer *a);

/* Returns the bytes of text, thought and tool calls so far. */
size_t sampled_answer_bytes(const struct sampled_answer *a);

/* Appends a sentence to the call's parse_warning. */
void sampled_answer_warn(struct sampled_answer *a, struct str text);

/* Sends earlier events to a new sink, from `at` on (zeroed: from the beginning), and advances `at`.
 * Sends at most *room units of REPEAT_UNIT bytes of text, and subtracts them. Returns true if all
 * events were sent: the caller then sends the sink later events as they arrive. */
enum { REPEAT_UNIT = 64 };

bool sampled_answer_repeat(const struct sampled_answer *a, struct repeat_place *at, size_t *room,
                           const struct answer_sink *sink, void *ctx);

/* Returns the assistant message in normalised form (chat.h), copied to the arena. */
const struct json *sampled_answer_message(const struct sampled_answer *a, struct arena *arena);

#endif
