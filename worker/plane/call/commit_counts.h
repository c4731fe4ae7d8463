/*
 * Metrics of a call whose answers are complete.
 */
#ifndef RG_CALL_COMMIT_COUNTS_H
#define RG_CALL_COMMIT_COUNTS_H

#include <stdint.h>

#include "worker/session/store/session.h"

struct model_call;
struct session_answer;

/* Counts the answers of a call, one for each of its samples, whether they are recorded or not. */
void commit_count_answers(const struct model_call *t, const struct session_answer *answers);

/* Counts a call whose record is applied. `planned` is the cause of its plan, `trimmed` the number
 * of tokens that the plan dropped. Returns the cause of the first answer. */
enum session_cause commit_count(const struct model_call *t, const struct session_answer *answers,
                                enum session_cause planned, uint32_t trimmed);

#endif
