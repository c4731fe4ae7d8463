/*
 * struct store_question: one call of a task to the fleet's store.
 *
 *     q = store_question_new(use_lengths, f);
 *     store_read(store, place, session, 0, store_question_call(q));
 *     verdict = store_question_await(q);
 *
 * `use` gets each answer of the store, also one after which the task repeats the call. If the task
 * is cancelled, `use` is not called any longer.
 */
#ifndef RG_LEDGER_STORE_QUESTION_H
#define RG_LEDGER_STORE_QUESTION_H

#include "common/base/attrs.h"
#include "common/fleet/fleet_store.h"
#include "common/os/task.h"

struct store_question;

struct store_question *store_question_new(store_answer_fn use, void *ctx);

/* Returns the function to pass to the store. */
struct store_call store_question_call(struct store_question *q);

/* Waits for the answer and frees q. Returns the verdict; STORE_LOST if the task was cancelled. */
MAY_PAUSE enum store_verdict store_question_await(struct store_question *q);

#endif
