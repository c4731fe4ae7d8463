/*
 * OpenAI Responses: ids, and functions that the other dialects do not have.
 * Ids that the gateway makes: resp_R for the response, msg_R[_k], rs_R[_k], fc_R_i, ctc_R_i,
 * tsc_R_i, cmp_R for its items. R is the bare response id, which has no underscore, so an item's id
 * leads to its answer.
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

/* Prefix of the encrypted_content of the gateway's own thoughts. The bare response id follows;
 * nothing is encrypted. */
#define RESPONSES_THOUGHT_SEAL "rollgate-"

/* Returns the bare response id of any id that the gateway made. */
struct str response_bare_id(struct str id);

/* Fails with ERR_INVALID and the path if the id is longer than RESPONSE_ID_MAX. */
int responses_check_id(const char *path, struct str id, struct err *e);

/* Implements dialect.recorded for both paths. */
int responses_recorded(struct arena *a, const struct json *body, uint64_t max_bytes, struct err *e);

/* The dialect of POST /responses/compact. */
extern const struct dialect dialect_compact;

/* Reports whether the request's last item asks for a compaction. */
bool responses_compacts(const struct json *body);

/* Returns the summary of a compaction's answer. */
struct str compaction_summary(const struct json *message);
/* Returns the summary of a compaction item's content, in the arena. Absent: the gateway did not
 * make the item. */
struct str compaction_open(struct arena *a, struct str sealed);

/* The writer and the asked function of /responses/compact (dialect.writer, dialect.asked). */
struct dialect_writer *compact_writer_new(struct arena *a, const struct chat_request *req,
                                          const struct json *body, struct buf *out);
const struct str *compact_asked(struct arena *a, const struct chat_request *req,
                                const struct json *body);

/* Lists the members of a request that its response object echoes (dialect.asked). */
const struct str *responses_asked(struct arena *a, const struct chat_request *req,
                                  const struct json *body);

/* Reports whether a text that was recorded as ASKED_OWN is of a compaction. */
bool responses_asked_compacts(struct str asked);

/* Writes the response object of a stored answer. head->usage is that of the whole call. `asked` has
 * the members that responses_asked recorded. */
void responses_write_stored(struct arena *a, const struct answer_head *head,
                            const struct finished_answer *answer, const struct json *asked,
                            struct str model, struct buf *out);

#endif
