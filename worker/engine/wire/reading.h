/*
 * struct reading: reads the body of one engine's answer: bytes in, one struct reply out. The body
 * is one JSON document or an event stream of them. A wire's table lists the fields that matter, and
 * no tree is built. Kinds with text (wire->text) get each document whole. Pure except for the delta
 * callback: no connection, no log, no clock.
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

/* MORE: success. TOLD: the answer reports an error (reading_words). LACKS: everything is there
 * except logprobs that the engine left out (reply.lacks), which must be requested. STRAY: the
 * answer belongs to a different request, and nothing of it was passed on. */
enum { READING_MORE, READING_TOLD, READING_LACKS, READING_STRAY };

/* Makes a reading. All arguments must outlive it. `remote` is passed to the wire's functions.
 * `delta` gets tokens as they come. */
struct reading *reading_new(const struct remote *remote, const struct wire *wire,
                            const struct engine_request *q,
                            void (*delta)(void *ctx, const struct engine_delta *d), void *ctx);

/* Sets, before the first byte, what the engine is known to send. mode: how its streams count (enum
 * reply_mode); basis: of its logprobs, if the answer does not contain it; experts: routed experts
 * were asked for. */
void reading_expect(struct reading *r, uint8_t mode, enum logprob_basis basis, bool experts);

/* Sets, before the first byte, the end of the answer's id (moved; empty: it has none), and whether
 * answers of this form have returned the id before. If so, any different id belongs to a different
 * request. Otherwise only a different id in our form does (remote_is_rid). */
void reading_expect_id(struct reading *r, struct buf *id);
void reading_expect_echo(struct reading *r, bool echoes);

/* Reports whether the answer has returned the id. */
bool reading_echoed(const struct reading *r);

/* The first function returns the id in the answer, empty: none. The second returns it only if it is
 * the request's own, as far as is known; else absent. */
struct str reading_answer_id(const struct reading *r);
struct str reading_own_id(const struct reading *r);

/* Frees the reading. Accepts NULL. */
void reading_free(struct reading *r);

/* Limits the bytes of one document, or of all events of a text kind; 0: no limit. */
void reading_limit(struct reading *r, uint64_t max_bytes);

/* Sets, before the first byte, that the body is an event stream; otherwise it is one document. */
void reading_expect_events(struct reading *r, bool events);

/* Reads the next bytes. Returns MORE or TOLD, or -1 with ERR_ENGINE_INVALID and the mistake. */
int reading_feed(struct reading *r, struct str bytes, struct err *e);

/* Reports, after the last byte of a whole answer of a text kind, whether a helper should read it
 * before reading_end. reading_parse uses only the reading (and counts in the request's `held`). */
bool reading_is_long(const struct reading *r);

/* Reports whether a helper takes several milliseconds for it. */
bool reading_takes_long(const struct reading *r);
void reading_parse(struct reading *r);

/* Ends the bytes. Returns like reading_feed, or LACKS. After MORE the reply has the whole
 * answer. */
int reading_end(struct reading *r, struct err *e);

/* Reports whether the last event has come, so that the remaining bytes do not matter. */
bool reading_ended(const struct reading *r);

/* Reports, after reading_end has failed, whether the end of the answer is missing. */
bool reading_cut(const struct reading *r);

/* Returns the engine's text after TOLD, or when it reports a failure, and its status in *ret_status
 * (0: none). Absent if it reported nothing. */
struct str reading_words(const struct reading *r, int64_t *ret_status);

/* Returns the seconds to wait that the reported error asks for; 0: no time. */
uint32_t reading_error_wait_s(const struct reading *r);

/* Reports whether the answer needs no separate request for the version of the weights: it contains
 * one, or has no tokens. */
bool reading_versioned(const struct reading *r);

/* Sets the version for the whole answer, after reading_end. */
void reading_set_version(struct reading *r, struct str version);

/* Returns the received data, which belongs to the reading. */
struct reply *reading_reply(struct reading *r);

/* Fills *ret with the answer in the pool's form, borrowed from r. Times are not filled. */
void reading_result(struct reading *r, struct engine_result *ret);

#endif
