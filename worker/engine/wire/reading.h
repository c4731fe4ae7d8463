/*
 * struct reading: the body of one engine's answer while it is read: bytes in, one struct reply out.
 * The body is one JSON document or an event stream of them; a wire's table says which fields
 * matter, and no tree is built. Kinds of text (wire->text) get each document whole. Pure but for
 * the delta callback: no connection, no log, no clock.
 *
 *   reading_new -> reading_feed ... -> reading_end -> reading_result -> reading_free
 */
#ifndef RG_WIRE_READING_H
#define RG_WIRE_READING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/engine/pool/engine.h"

struct engine_delta;
struct engine_request;
struct engine_result;
struct reading;
struct remote;
struct reply;
struct wire;

/* MORE: all is well. TOLD: the answer reports an error (reading_words). LACKS: all is there but
 * logprobs that the engine left out (reply.lacks), which are to be asked for. STRAY:
 * the answer is another request's, and nothing of it was given. */
enum { READING_MORE, READING_TOLD, READING_LACKS, READING_STRAY };

/* All outlive it; the remote is what the wire's functions are called with. `delta` hears of tokens
 * as they come. */
struct reading *reading_new(const struct remote *remote, const struct wire *wire,
                            const struct engine_request *q,
                            void (*delta)(void *ctx, const struct engine_delta *d), void *ctx);

/* Before the first byte: what the engine is known to tell. mode: how its streams count (enum
 * reply_mode); basis: of its logprobs, where the answer does not say; experts: routed experts are
 * asked for. */
void reading_expect(struct reading *r, uint8_t mode, enum logprob_basis basis, bool experts);

/* Sets, before the first byte, what the answer's id ends with (empty: it has none), and whether
 * answers of this form have returned the id before. Then another id is another request's; else
 * only an id that looks like ours is (remote_is_rid). */
void reading_expect_id(struct reading *r, struct str id);
void reading_expect_echo(struct reading *r, bool echoes);

/* Whether the answer has returned the id. */
bool reading_echoed(const struct reading *r);

/* The id that the answer returned, empty: none; and the same if it is the request's own, as far as
 * is known, else absent. */
struct str reading_answer_id(const struct reading *r);
struct str reading_own_id(const struct reading *r);

/* NULL is fine. */
void reading_free(struct reading *r);

/* One document, or all events of a kind of text, may have so many bytes; 0: no limit. */
void reading_limit(struct reading *r, uint64_t max_bytes);

/* Before the first byte: the body is an event stream, else it is one document. */
void reading_expect_events(struct reading *r, bool events);

/* The next bytes: MORE or TOLD, or -1 ERR_ENGINE_INVALID that says what is wrong. */
int reading_feed(struct reading *r, struct str bytes, struct err *e);

/* No more bytes come, of a whole answer of a kind of text: whether it is so long that it is better
 * read before reading_end, by a helper: reading_parse touches the reading alone (and counts in the
 * request's `held`). */
bool reading_is_long(const struct reading *r);

/* Of such a reading: whether it takes a helper several milliseconds. */
bool reading_takes_long(const struct reading *r);
void reading_parse(struct reading *r);

/* No more bytes come: as reading_feed, or LACKS. With MORE the whole answer is in the reply. */
int reading_end(struct reading *r, struct err *e);

/* Whether the last event was there: what follows does not matter. */
bool reading_ended(const struct reading *r);

/* After reading_end failed: whether the end of the answer is what is missing. */
bool reading_cut(const struct reading *r);

/* After TOLD, or when the engine says that it went wrong: its words, and its status in *ret_status
 * (0: none). Absent when it said nothing of the kind. */
struct str reading_words(const struct reading *r, int64_t *ret_status);

/* Returns the seconds to wait that the reported error asks for; 0: no time. */
uint32_t reading_error_wait_s(const struct reading *r);

/* Whether the answer needs no version of the weights from elsewhere: it tells one, or no token. */
bool reading_versioned(const struct reading *r);

/* All of it was sampled under this version; after reading_end. */
void reading_set_version(struct reading *r, struct str version);

/* What was received; the reading's own. */
struct reply *reading_reply(struct reading *r);

/* Fills *ret with the answer as the pool hears of it, borrowed from r; times are not filled. */
void reading_result(struct reading *r, struct engine_result *ret);

#endif
