/*
 * struct reply: the data that one attempt has received so far, from any kind of engine: the
 * answer's tokens (total) and those of the present document (event). Wire formats fill the event
 * part; reply_merge checks it and moves it over. Streams may repeat everything in each event
 * (cumulative) or send only what is new (incremental), which the counts show.
 */
#ifndef RG_WIRE_WIRE_REPLY_H
#define RG_WIRE_WIRE_REPLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec/json_scan.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/wire/entries.h"
#include "worker/engine/wire/support.h"

enum reply_finish {
    REPLY_RUNNING,
    REPLY_STOP,
    REPLY_LENGTH,
    REPLY_ABORT,
    REPLY_BROKEN, /* the engine reports that it failed (NaN, "error") */
};

enum reply_mode { REPLY_UNKNOWN, REPLY_CUMULATIVE, REPLY_INCREMENTAL };

struct npy;

struct reply_tops {
    struct engine_top *at;
    size_t n, cap;
};

struct reply_span {
    size_t text_at, text_len; /* range in version_text */
    int64_t start, end;
};

struct reply_spans {
    struct reply_span *at;
    size_t n, cap;
};

struct reply_event {
    struct json_ints ids, logprob_ids, top_ids, echo; /* echo: ids of the prompt */
    struct json_floats logprobs, top_logprobs;
    size_t ids_seen, logprobs_seen; /* number of items, including skipped ones */
    size_t top_positions;
    bool has_ids, has_logprobs, has_logprob_ids, has_echo, has_spans;
    int64_t prompt_tokens, completion_tokens; /* -1: not reported */
    const char *misfit;                       /* error found by a wire, or NULL */
};

/* A token of a whole answer for which the engine returned no logprob. */
struct reply_lack {
    uint32_t at;
    bool inside; /* a later token has an entry, so the text ends inside a character here */
};

struct reply_lacks {
    struct reply_lack *at;
    size_t n, cap;
};

struct reply {
    struct json_ints ids;
    struct json_floats logprobs;
    struct reply_tops tops;
    uint32_t n_top; /* number of requested alternatives per position */
    /* number of the event's tops that are in `tops` already, but not counted there */
    size_t early_tops;
    struct reply_event event;
    enum reply_mode mode, told; /* mode according to the counts; mode that the engine reports */
    enum reply_finish finish;
    int64_t stop_id;        /* -1: the answer has none */
    struct buf stop_text;   /* len 0: the answer has none */
    bool failed;            /* the engine reported an error */
    int64_t status;         /* status of the error or abort; 0: none */
    struct buf message;     /* message of the error or abort */
    struct buf error_code;  /* text of the error's code; len 0: none */
    struct buf error_type;  /* text of the error's type, or the unknown finish; len 0: none */
    uint32_t retry_after_s; /* wait that the error asks for; 0: none */
    struct buf answer_id;   /* id of the request as returned; len 0: none */
    struct buf version;     /* version in the answer; len 0: none */
    struct buf version_text;
    struct reply_spans spans;
    struct buf seen_text; /* texts for `seen`: the version of the new tokens of each event */
    struct reply_spans seen;
    struct buf experts;
    bool has_experts;
    size_t experts_from; /* offset in the answer's experts where the requested rows begin */
    /* files that were read from the experts, for a wire with such files; owned; or NULL */
    struct npy *npy;
    struct buf indexer; /* top-k of the indexer: the requested rows (indexer_window) */
    struct base64_window indexer_window, passed_over;
    bool has_indexer;
    int64_t indexer_layers; /* number of layers that the engine reports; -1: not reported */
    bool speculates;        /* the engine reports counts of speculative decoding */
    bool repeats;           /* the engine ended the answer because it repeats itself */
    size_t n_named_tops;    /* number of alternatives with an id */
    /* the rows are not from the run that sampled (engine_result.recomputed) */
    bool recomputed;
    bool truncated;           /* the engine had no space for more, or dropped part of the prompt */
    int64_t slot_tokens;      /* tokens in the engine's slot at the end; 0: not reported */
    struct entries entries;   /* for wires with entries: as they came */
    struct reply_lacks lacks; /* tokens to be scored; their logprobs are NaN until then */
    /* all tokens are scored as raw, because the missing ones could not be scored otherwise */
    bool lowered;
    uint32_t scored;          /* number of scored tokens */
    enum logprob_basis basis; /* basis of the logprobs, if the answer has it; else BASIS_UNKNOWN */
    bool basis_told;          /* for a wire with two forms of entries: one of them has come */
    int64_t dp_rank;          /* data-parallel rank that answered; -1: not reported */
    int64_t cached;           /* prompt tokens in the engine's cache; -1: not reported */
    struct json_ints prompt_ids; /* for kind openai: as returned by the upstream */
    struct support support;
    atomic_size_t *held; /* counter that includes `counted` bytes of this reply; or NULL */
    size_t counted;
};

/* Starts an empty reply. held: counter for its bytes (reply_count), or NULL. */
void reply_init(struct reply *y, uint32_t n_top, atomic_size_t *held);
void reply_done(struct reply *y);

/* Counts the reply's memory after bytes have come, and `besides` bytes that its owner keeps. */
void reply_count(struct reply *y, size_t besides);

/* Begins a new document. */
void reply_begin_event(struct reply *y);

/* Fails with ERR_ENGINE_INVALID: the engine's answer is invalid, and what is wrong. Returns -1. */
int reply_invalid(struct err *e, const char *what);

/* Returns as much of an engine's own words as an error shows: at most 64 bytes, whole characters.
 */
struct str reply_shown(struct str words);

/* Fails like reply_invalid because of a logprob, with its token's position in the answer and its
 * value. */
int reply_invalid_logprob(struct err *e, const char *fault, size_t at, int32_t id, float logprob);

/* Returns the index of the first new item of the next ids or logprobs array. */
static inline size_t reply_from(const struct reply *y)
{
    return y->mode == REPLY_CUMULATIVE ? y->ids.n : 0;
}

/* Moves the alternatives of complete positions while a whole answer is being read, because moving
 * all of them at its end would take some milliseconds. */
void reply_take_early(struct reply *y);

/* Moves the event over: counts, ids with logprobs, alternatives. Returns 0 with *ret_new tokens
 * added at the end, or -1 with ERR_ENGINE_INVALID, which names the mismatch. `stream`: more
 * documents may follow; else this is the only one. */
int reply_merge(struct reply *y, bool stream, size_t *ret_new, struct err *e);

/* A member of a span of weight versions. The members of one span come in any order, so the first
 * one opens it. An event's spans replace those of earlier events. */
enum reply_span_member { SPAN_VERSION, SPAN_START, SPAN_END };

void reply_take_span(struct reply *y, enum reply_span_member member, const struct json_scan *s);

/* Records, after an event, the version under which its tokens were sampled. */
void reply_note_version(struct reply *y);

/* Decides the versions, after the last event: `spans` of the engine, else the recorded ones. Spans
 * of an aborted answer end with the tokens that came. */
void reply_settle_versions(struct reply *y);

/* Checks that each span of weight versions has all its members: 0, or -1 ERR_ENGINE_INVALID. */
int reply_check_spans(const struct reply *y, struct err *e);

/* Sets the version for the whole answer, after reply_settle_versions. */
void reply_set_version(struct reply *y, struct str version);

/* Read scalars: a text as an integer (-1 if it is not one), and a copy of a text. */
int64_t reply_int(const struct json_scan *s);
int32_t reply_token(const struct json_scan *s); /* returns a token id; -1 if it is not one */
float reply_float(const struct json_scan *s);   /* returns NaN if it is not a number */
void reply_text(struct buf *to, const struct json_scan *s);

/* Ends a document with an error, whose members came in any order: its status is the one that code
 * or type means. A code or type that means a prompt that is too long is added to the message. */
void reply_end_error(struct reply *y);

/* Reads a finish reason's type: null, "stop", "length", "abort", or vLLM's "repetition", which is a
 * length (reply.repeats). Anything else is a failure. */
void reply_take_finish(struct reply *y, const struct json_scan *s);

/* Records a finish reason that is none of the known ones. */
void reply_take_unknown_finish(struct reply *y, const struct json_scan *s);

/* Begins an entry, for wires with entries. */
void reply_begin_entry(struct reply *y);

/* Places, at the end of the document, the event's logprobs and alternatives at the positions of its
 * ids, for wires with entries. A token without one gets NaN and a lack. Sets event.misfit if they
 * do not fit. */
void reply_take_entries(struct reply *y);

/* Begins the next position of alternatives. Those of the last position are complete: they are cut
 * or filled up with NaN to the requested number. */
void reply_begin_position(struct reply *y);
void reply_end_position(struct reply *y);

/* Begins one alternative at the position, without id and logprob. If the alternative before it has
 * a logprob and no id, the event is a misfit. */
void reply_begin_top(struct reply *y);

#endif
