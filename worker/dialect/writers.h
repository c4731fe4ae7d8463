/*
 * Shared by the dialects' answer writers, and their entries. A writer turns the events of one
 * struct answer_sink into bytes in `out`: SSE events of a stream, or one JSON text at finish. Pure.
 * All memory comes from the request's arena; a writer has no destructor.
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

/* The common front of every writer. */
struct writer {
    struct dialect_writer base; /* first: the sink's ctx */
    struct arena *a;
    const struct chat_request *req;
    const struct json *body;
    struct buf *out;
    struct answer_head head; /* strings copied */
    bool begun;              /* head came */
};

extern const struct dialect dialect_chat, dialect_messages, dialect_count_tokens, dialect_responses,
    dialect_completions;

struct dialect_writer *chat_writer_new(struct arena *a, const struct chat_request *req,
                                       const struct json *body, struct buf *out);
struct dialect_writer *anthropic_writer_new(struct arena *a, const struct chat_request *req,
                                            const struct json *body, struct buf *out);
struct dialect_writer *responses_writer_new(struct arena *a, const struct chat_request *req,
                                            const struct json *body, struct buf *out);
struct dialect_writer *completions_writer_new(struct arena *a, const struct chat_request *req,
                                              const struct json *body, struct buf *out);

void openai_write_error(const struct err *e, struct str request_id, struct buf *out);
void responses_write_error(const struct err *e, struct str request_id, struct buf *out);
void anthropic_write_error(const struct err *e, struct str request_id, struct buf *out);

/* Writes the answer of count_tokens. */
void anthropic_write_count(size_t n_tokens, struct buf *out);

/* {"message","type","param","code"}: the inside of an OpenAI error. */
void openai_error_object(struct json_out *o, const struct err *e);

/* stream_options of Chat Completions and Completions. */
int chat_read_stream_options(const struct json *body, struct chat_request *req, struct err *e);

void writer_init(struct writer *w, const struct answer_sink *sink, struct arena *a,
                 const struct chat_request *req, const struct json *body, struct buf *out);

/* Keeps the head's strings; called by every writer's head. */
void writer_begin(struct writer *w, const struct answer_head *h);

/* "data: " ... blank line; with a name also "event: NAME". Between the two calls the JSON goes to
 * *o. */
void sse_begin(struct writer *w, const char *event, struct json_out *o);
void sse_end(struct writer *w);

/* The end of a stream of Chat Completions or Completions: usage, if it was asked for, in a chunk
 * without choices that `begin_chunk` opens; then [DONE]. */
void openai_stream_end(struct writer *w, const struct call_usage *u,
                       void (*begin_chunk)(struct writer *w, struct json_out *o));
/* Writes OpenAI's in-stream error. */
void openai_stream_failed(struct writer *w, const struct err *e);

/* "chat.completion" usage; key prompt_tokens ... */
void openai_usage(struct json_out *o, const struct call_usage *u);

/* Appends the text of a token for people: broken UTF-8 as U+FFFD. */
void logprob_text(struct buf *out, const struct token_logprob *lp);
/* Writes the token's text as a JSON string. */
void logprob_token(struct json_out *o, const struct token_logprob *lp);
/* One entry of logprobs.content, with top_logprobs. */
void logprob_entry(struct json_out *o, const struct token_logprob *lp);

/* Seals that a stream has sent, so that none goes out twice. */
struct told_seals {
    struct str *at;
    size_t n, cap;
};

/* Notes a seal, copied into the arena. Returns false if it was noted before. */
bool sent_seals_add(struct told_seals *t, struct arena *a, struct str seal);

/* Passes the seals of a whole message to `sealed`, at the end of a stream. */
void writer_send_unsent_seals(struct writer *w, const struct json *message,
                              void (*sealed)(void *ctx, uint32_t index, struct str seal,
                                             bool signs_text));

/* An id: prefix and the bare response id. */
void write_id(struct json_out *o, const char *prefix, struct str id);

void grown_add(struct arena *a, struct grown *g, struct str s);

static inline struct str grown_str(const struct grown *g)
{
    return str_of(g->p ? g->p : "", g->len);
}

/* Reports whether the text is white space only, which clients drop next to a call. */
bool text_blank(struct str s);

#endif
