/*
 * struct reply: what one attempt has received so far, whatever engine it came from: the answer's
 * tokens (total) and what the document now being read brought (event). Wire formats fill the event
 * part; reply_merge checks it and moves it over. Streams may repeat everything in each event
 * (cumulative) or bring only what is new (incremental): which it is shows in the counts.
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
    REPLY_BROKEN, /* the engine says that it went wrong (NaN, "error") */
};

enum reply_mode { REPLY_UNKNOWN, REPLY_CUMULATIVE, REPLY_INCREMENTAL };

struct npy;

struct reply_tops {
    struct engine_top *at;
    size_t n, cap;
};

struct reply_span {
    size_t text_at, text_len; /* in version_text */
    int64_t start, end;
};

struct reply_spans {
    struct reply_span *at;
    size_t n, cap;
};

struct reply_event {
    struct json_ints ids, logprob_ids, top_ids, echo; /* echo: the prompt's ids */
    struct json_floats logprobs, top_logprobs;
    size_t ids_seen, logprobs_seen; /* items, those passed over included */
    size_t top_positions;
    bool has_ids, has_logprobs, has_logprob_ids, has_top, has_echo, has_spans;
    int64_t prompt_tokens, completion_tokens; /* -1: not said */
    const char *misfit;                       /* error found by a wire; NULL: none */
};

/* A token of a whole answer without a logprob from the engine. */
struct reply_lack {
    uint32_t at;
    bool inside; /* an entry behind it is there: the text ends inside a character here */
};

struct reply_lacks {
    struct reply_lack *at;
    size_t n, cap;
};

struct reply {
    struct json_ints ids;
    struct json_floats logprobs;
    struct reply_tops tops;
    uint32_t n_top;    /* asked for; alternatives per position */
    size_t early_tops; /* number of the event's tops that are in `tops` already, uncounted */
    struct reply_event event;
    enum reply_mode mode, told; /* mode as counted; as the engine announced it */
    enum reply_finish finish;
    int64_t stop_id;        /* -1: none */
    struct buf stop_text;   /* len 0: none */
    bool failed;            /* the engine reported an error */
    int64_t status;         /* status of the error or abort; 0: none */
    struct buf message;     /* message of the error or abort */
    struct buf error_code;  /* text of the error's code, */
    struct buf error_type;  /* and of its type; len 0: none */
    uint32_t retry_after_s; /* wait that the error asks for; 0: no time */
    struct buf answer_id;   /* its own text of the request's id; len 0: none */
    struct buf version;     /* len 0: none */
    struct buf version_text;
    struct reply_spans spans;
    struct buf seen_text; /* versions of `seen`: one for the new tokens of each event */
    struct reply_spans seen;
    struct buf experts;
    bool has_experts;
    size_t experts_from; /* they begin at this byte */
    struct npy *npy;     /* files taken out of experts, for a wire with such files; own; or NULL */
    struct buf indexer;  /* top-k of the indexer: the part that was asked for (indexer_window) */
    struct base64_window indexer_window, passed_over;
    bool has_indexer;
    int64_t indexer_layers;   /* layers as the engine reports; -1: not reported */
    bool speculates;          /* the engine has counts of speculative decoding */
    size_t n_named_tops;      /* alternatives with an id */
    bool recomputed;          /* its rows are not those of the sampling: engine_result.recomputed */
    bool truncated;           /* the engine had no room for more, or dropped part of the prompt */
    struct entries entries;   /* wires with entries: as they came */
    struct reply_lacks lacks; /* to be scored; their logprobs are NaN until then */
    bool lowered;    /* all are scored, as raw ones: the missing ones could not be had otherwise */
    uint32_t scored; /* how many were */
    enum logprob_basis basis; /* basis of the logprobs, if the answer has it; else BASIS_UNKNOWN */
    bool basis_told;          /* a wire with two forms of entries has met one of them */
    int64_t dp_rank;          /* rank that answered; -1: not reported */
    int64_t cached;           /* prompt tokens that the engine had cached; -1: not reported */
    struct json_ints prompt_ids; /* kind openai: as the upstream returned them */
    struct support support;
    atomic_size_t *held; /* `counted` of its bytes are in it; or NULL */
    size_t counted;
};

/* held: where its bytes are counted (reply_count), or NULL. */
void reply_init(struct reply *y, uint32_t n_top, atomic_size_t *held);
void reply_done(struct reply *y);

/* Bytes have come: counts what the reply takes now, and so many bytes that its owner keeps. */
void reply_count(struct reply *y, size_t besides);

/* Begins a new document. */
void reply_begin_event(struct reply *y);

/* Returns the index of the first new item of the next ids or logprobs array. */
static inline size_t reply_from(const struct reply *y)
{
    return y->mode == REPLY_CUMULATIVE ? y->ids.n : 0;
}

/* While a whole answer comes: alternatives of positions that are complete are taken over by the
 * way, for at its end all of them would take some milliseconds. */
void reply_take_early(struct reply *y);

/* Takes the event over: counts, ids beside logprobs, alternatives. Returns 0 with *ret_new tokens
 * added at the end, or -1 ERR_ENGINE_INVALID that says what does not fit. `stream`: more documents
 * may follow; else the one is the whole. */
int reply_merge(struct reply *y, bool stream, size_t *ret_new, struct err *e);

/* A member of a span of weight versions. Members of one span come in any order, so the first one
 * opens it. An event's spans replace those of the events before. */
enum reply_span_member { SPAN_VERSION, SPAN_START, SPAN_END };

void reply_take_span(struct reply *y, enum reply_span_member member, const struct json_scan *s);

/* Records, after an event, the version under which its tokens were sampled. */
void reply_note_version(struct reply *y);

/* Decides the versions, after the last event: `spans` of the engine, else the recorded ones. */
void reply_settle_versions(struct reply *y);

/* Checks that each span of weight versions has all its members: 0, or -1 ERR_ENGINE_INVALID. */
int reply_check_spans(const struct reply *y, struct err *e);

/* All of it was sampled under this version; after reply_settle_versions. */
void reply_set_version(struct reply *y, struct str version);

/* Helpers for scalars: text as an integer (-1 when it is none), and copied. */
int64_t reply_int(const struct json_scan *s);
int32_t reply_token(const struct json_scan *s); /* a token id, -1 if it is no such number */
float reply_float(const struct json_scan *s);   /* NaN when it is no number */
void reply_text(struct buf *to, const struct json_scan *s);

/* Ends a document with an error, whose members came in any order: its status is what code or type
 * says. One of these that means a prompt that is too long joins the message. */
void reply_end_error(struct reply *y);

/* A finish reason's type: null, "stop", "repetition" (vLLM ends what only repeats itself),
 * "length", "abort"; anything else is a failure. */
void reply_take_finish(struct reply *y, const struct json_scan *s);

/* For wires with entries: another one begins. */
void reply_begin_entry(struct reply *y);

/* For wires with entries, at the end of the document: the event's logprobs and alternatives in the
 * places of its ids, NaN and a lack for each token that has none, or event.misfit. */
void reply_take_entries(struct reply *y);

/* Alternatives that come now are those of the next position; no more come for the last: cut or
 * filled up with NaN to as many as were asked for. */
void reply_begin_position(struct reply *y);
void reply_end_position(struct reply *y);

/* Begins one alternative of the position, without id and logprob. If the alternative before it has
 * a logprob and no id, the event is a misfit. */
void reply_begin_top(struct reply *y);

#endif
