/*
 * Functions that the dialects' answer writers share, and the writers' constructors. A writer turns
 * the events of one struct answer_sink into bytes in `out`: SSE events, or one JSON text at the
 * end. Pure. All memory comes from the request's arena; a writer has no destructor.
 */
#ifndef RG_DIALECT_WRITERS_H
#define RG_DIALECT_WRITERS_H

#include "worker/dialect/dialect.h"
#include "worker/text/request/answer_sink.h"

struct json_out;

/* Text that grows in an arena. */
struct grown {
    char *p;
    size_t len, cap;
};

/* Common head of every writer. */
struct writer {
    struct dialect_writer base; /* must be first: the sink's ctx */
    struct arena *a;
    const struct chat_request *req;
    const struct json *body;
    struct buf *out;
    struct answer_head head; /* strings copied */
    bool begun;              /* the head was received */
};

/* The dialects' functions dialect.writer. */
struct dialect_writer *chat_writer_new(struct arena *a, const struct chat_request *req,
                                       const struct json *body, struct buf *out);
struct dialect_writer *anthropic_writer_new(struct arena *a, const struct chat_request *req,
                                            const struct json *body, struct buf *out);
struct dialect_writer *responses_writer_new(struct arena *a, const struct chat_request *req,
                                            const struct json *body, struct buf *out);
struct dialect_writer *completions_writer_new(struct arena *a, const struct chat_request *req,
                                              const struct json *body, struct buf *out);

/* The dialects' functions dialect.error. */
void openai_write_error(const struct err *e, struct str request_id, struct buf *out);
void responses_write_error(const struct err *e, struct str request_id, struct buf *out);
void anthropic_write_error(const struct err *e, struct str request_id, struct buf *out);

/* Writes the answer of count_tokens. */
void anthropic_write_count(size_t n_tokens, struct buf *out);

/* Writes the inner object of an OpenAI error: {"message","type","param","code"}. */
void openai_error_object(struct json_out *o, const struct err *e);

/* Reads stream_options of Chat Completions and Completions. */
int chat_read_stream_options(const struct json *body, struct chat_request *req, struct err *e);

/* Initialises the common head of a writer. All pointers are borrowed. */
void writer_init(struct writer *w, const struct answer_sink *sink, struct arena *a,
                 const struct chat_request *req, const struct json *body, struct buf *out);

/* Copies the head and its strings. Each writer's head function calls it. */
void writer_begin(struct writer *w, const struct answer_head *h);

/* Begins and ends an SSE event: "data: " ... blank line, with a name also "event: NAME". The caller
 * writes the JSON to *o in between. */
void sse_begin(struct writer *w, const char *event, struct json_out *o);
void sse_end(struct writer *w);

/* Ends a stream of Chat Completions or Completions. If usage was requested, sends it in a chunk
 * without choices, which `begin_chunk` opens. Then sends [DONE]. */
void openai_stream_end(struct writer *w, const struct call_usage *u,
                       void (*begin_chunk)(struct writer *w, struct json_out *o));
/* Sends OpenAI's in-stream error if the stream has begun. */
void openai_stream_failed(struct writer *w, const struct err *e);

/* Writes the usage object of Chat Completions and Completions. */
void openai_usage(struct json_out *o, const struct call_usage *u);

/* Appends a token's text for display. Invalid UTF-8 becomes U+FFFD. */
void logprob_text(struct buf *out, const struct token_logprob *lp);
/* Writes the token's text as a JSON string. */
void logprob_token(struct json_out *o, const struct token_logprob *lp);
/* Writes one entry of logprobs.content, with top_logprobs. */
void logprob_entry(struct json_out *o, const struct token_logprob *lp);

/* Seals that a stream has sent, so that each is sent once. */
struct told_seals {
    struct str *at;
    size_t n, cap;
};

/* Adds a copy of the seal, in the arena. Returns false if it was added before. */
bool sent_seals_add(struct told_seals *t, struct arena *a, struct str seal);

/* Passes all seals of a whole message to `sealed`, at the end of a stream. `sealed` skips those
 * that were sent. */
void writer_send_unsent_seals(struct writer *w, const struct json *message,
                              void (*sealed)(void *ctx, uint32_t index, struct str seal,
                                             bool signs_text));

/* Writes an id as a JSON string: prefix and bare response id. */
void write_id(struct json_out *o, const char *prefix, struct str id);

/* Appends a copy of the text. Its memory comes from the arena. */
void grown_add(struct arena *a, struct grown *g, struct str s);

static inline struct str grown_str(const struct grown *g)
{
    return str_of(g->p ? g->p : "", g->len);
}

/* Reports whether the text is only white space, which clients drop next to a call. */
bool text_blank(struct str s);

#endif
