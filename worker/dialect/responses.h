/*
 * OpenAI Responses beyond what every dialect has: ids and stored responses.
 * Ids we issue: resp_R for the response, msg_R[_k], rs_R[_k], fc_R_i, ctc_R_i, tsc_R_i for its
 * items, where R is the bare response id (which has no underscore): an item's id leads to its
 * answer.
 */
#ifndef RG_DIALECT_RESPONSES_H
#define RG_DIALECT_RESPONSES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct answer_head;
struct arena;
struct buf;
struct chat_request;
struct dialect;
struct dialect_writer;
struct err;
struct finished_answer;
struct json;
struct str;

/* The start of our thoughts' encrypted_content: R follows, since nothing is sealed. */
#define RESPONSES_THOUGHT_SEAL "rollgate-"

/* R of any id that we issued. */
struct str response_bare_id(struct str id);

/* Longer ids than RESPONSE_ID_MAX are refused: -1 and ERR_INVALID with the path. */
int responses_check_id(const char *path, struct str id, struct err *e);

/* Implements dialect.recorded. */
int responses_recorded(struct arena *a, const struct json *body, uint64_t max_bytes, struct err *e);

/* POST /responses/compact. */
extern const struct dialect dialect_compact;

/* Whether the request's last item asks for a compaction. */
bool responses_compacts(const struct json *body);

/* compaction_seal makes the content of a compaction item from a summary. The other reads the
 * summary of an item that we made; absent: it is not ours. In the arena. */
struct str compaction_seal(struct arena *a, struct str summary);
struct str compaction_open(struct arena *a, struct str sealed);

struct dialect_writer *compact_writer_new(struct arena *a, const struct chat_request *req,
                                          const struct json *body, struct buf *out);
const struct str *compact_asked(struct arena *a, const struct chat_request *req,
                                const struct json *body);

/* Lists the members of a request that its response object echoes (dialect.asked). */
const struct str *responses_asked(struct arena *a, const struct chat_request *req,
                                  const struct json *body);

/* The response object of a stored answer; head->usage is the whole call's. `asked` has the members
 * that responses_asked kept. */
void responses_write_stored(struct arena *a, const struct answer_head *head,
                            const struct finished_answer *answer, const struct json *asked,
                            struct str model, struct buf *out);

#endif
