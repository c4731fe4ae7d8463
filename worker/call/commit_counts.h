/*
 * What the metrics learn of a call whose answers are complete.
 */
#ifndef RG_CALL_COMMIT_COUNTS_H
#define RG_CALL_COMMIT_COUNTS_H

#include <stdint.h>

#include "worker/session/session.h"

struct model_call;
struct session_answer;

/* The answers of a call, one for each of its samples, recorded or not. */
void commit_count_answers(const struct model_call *t, const struct session_answer *answers);

/* The same call once its record is written. planned: the cause of its plan, which has also dropped
 * `trimmed` tokens. */
void commit_count(const struct model_call *t, const struct session_answer *answers,
                  enum session_cause planned, uint32_t trimmed);

#endif
