/*
 * struct loose_parts: parts of calls (record_parts.h) that no commit has named yet, by session and
 * call. Those that no commit can name any more are given up in the journal, live and behind a
 * replay alike: nothing is written for that, since the records themselves tell it.
 */
#ifndef RG_LEDGER_LOOSE_PARTS_H
#define RG_LEDGER_LOOSE_PARTS_H

#include <stdint.h>

#include "common/base/str.h"

struct journal;
struct loose_parts;

struct loose_parts *loose_parts_new(void);

/* NULL is fine. Nothing is given up. */
void loose_parts_free(struct loose_parts *l);

/* The journal has that record as number `number` of its session, and what it means is true: parts
 * of a call that a commit names are loose no more; those that it does not name, that begin anew, or
 * whose session can commit nothing any more are given up. */
void loose_parts_note(struct loose_parts *l, struct journal *j, struct str session_id,
                      struct str record, uint32_t number);

/* That call will not commit. */
void loose_parts_give_up(struct loose_parts *l, struct journal *j, struct str session_id,
                         uint64_t call);

/* None of the calls will: behind a replay no call runs. All are in that journal. */
void loose_parts_give_up_all(struct loose_parts *l, struct journal *j);

#endif
