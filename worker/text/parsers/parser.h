/*
 * struct parser: splits a model's text into reasoning, text and tool calls while it arrives.
 *
 * Input is the completion's text, split anywhere. It includes special tokens that are marks of the
 * formats (parser_reads: <|tool_call_begin|> or <|channel|> are special tokens in most
 * vocabularies), but not the token that ended the turn. Output is a sequence of events, which does
 * not depend on the split (neighbouring deltas of one kind may be split differently).
 *
 * Nothing is lost: the texts of TEXT, REASONING and SOURCE events, in order, are the input, byte
 * for byte. SOURCE is syntax (tags, calls, white space around calls); the CALL_* events carry its
 * meaning. A block that is not a valid call (bad JSON, unknown name, unterminated) becomes TEXT,
 * with a WARNING.
 *
 * hold_bytes limits how long a call is held back for certainty. Up to that many bytes of a block
 * wait until the block is known to be valid. A longer block is committed and its arguments stream.
 * If a committed call turns out broken, its bytes are still sent as arguments, up to its closing
 * mark, and CALL_END says broken. If the arguments are composed from another notation, the unused
 * source follows as TEXT. SIZE_MAX (a reply that is not streamed) never commits early.
 *
 * Pure: no I/O, no log, no clock. Grammars: the parsers of SGLang and vLLM, as their documentation
 * and tests describe them; strict JSON only.
 */
#ifndef RG_PARSERS_PARSER_H
#define RG_PARSERS_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/parsers/kinds.h"

struct json;

enum { PARSER_HOLD_BYTES = 256 }; /* default of hold_bytes for a streamed reply */

enum parse_kind {
    PARSE_TEXT,       /* text: content for the user */
    PARSE_REASONING,  /* text: thought, without its tags */
    PARSE_CALL_BEGIN, /* call, text = name, id = the model's own id or absent */
    PARSE_CALL_ARGS,  /* call, text = next bytes of the JSON arguments */
    PARSE_CALL_END,   /* call; broken: the arguments are not valid JSON */
    PARSE_SOURCE,     /* text: bytes that were syntax. For accounting, not for the user */
    PARSE_WARNING,    /* text: one sentence for the turn's parse_warning */
};

struct parse_event {
    enum parse_kind kind;
    int call;        /* ordinal of the call in this completion, from 0 */
    bool broken;     /* only for CALL_END */
    struct str text; /* valid during the callback only */
    struct str id;   /* only for CALL_BEGIN */
};

struct parse_sink {
    void (*on_event)(void *ctx, const struct parse_event *ev);
    void *ctx;
};

struct parser_options {
    enum tool_kind tool;
    enum reasoning_kind reasoning;
    enum thought_state thought; /* result of parser_thought for the prompt */
    bool call_closes;           /* a tool call ends the thought, even if the kind's calls do not */
    size_t hold_bytes;
    /* tools of the request (OpenAI form, or bare {name, parameters}); borrowed until parser_free.
     * NULL: every name is known and nothing has a schema */
    const struct json *tools;
};

/* Reports whether the text of a token is a mark of these formats, or a fragment of one. */
bool parser_reads(const struct parser_options *o, struct str token);

struct parser;

/* Makes a parser, which calls sink during feed and finish. Never fails. */
struct parser *parser_new(const struct parser_options *o, struct parse_sink sink);
void parser_free(struct parser *p);

/* Parses the next bytes (UTF-8; a character may be cut). */
void parser_feed(struct parser *p, struct str text);

/* A set of bytes: bit c % 64 of word c / 64. */
struct parser_bytes {
    uint64_t words[4];
};

static inline bool parser_bytes_has(const struct parser_bytes *set, char c)
{
    return set->words[(unsigned char)c / 64] >> ((unsigned char)c % 64) & 1;
}

static inline bool parser_bytes_none(const struct parser_bytes *set)
{
    return (set->words[0] | set->words[1] | set->words[2] | set->words[3]) == 0;
}

/* Returns the bytes with which a mark may begin, if the parser is inside a text or thought and
 * holds no bytes. Until one of these bytes comes, all text continues the same kind of event,
 * however it is split. NULL: the parser is in a different state. Valid until the next feed. */
const struct parser_bytes *parser_steady(struct parser *p);

/* Ends the text and decides what was held back. Call it once; feed no more afterwards. */
void parser_finish(struct parser *p);

/* Length in bytes that no tag around a thought exceeds. A trimmed `tail` of parser_thought needs no
 * more bytes. */
enum { PARSER_TAG_MAX = 40 };

/* Returns the state of thought after a prompt that ends with `tail`. It depends on the last
 * start or end tag, if only white space follows it, and on whether the kind's thoughts are
 * always open. */
enum thought_state parser_thought(enum reasoning_kind kind, struct str tail);

#endif
