/*
 * struct fragments: the fragments of calls (RECORD_BULK) that no commit has named yet. Those that
 * none can name any more are dropped from the journal, live and after a replay alike. Nothing is
 * written for that: the records themselves say it.
 */
#ifndef RG_LEDGER_FRAGMENTS_H
#define RG_LEDGER_FRAGMENTS_H

#include <stdint.h>

#include "common/base/str.h"

struct fragments;
struct journal;

struct fragments *fragments_new(void);

/* NULL is allowed. They stay in the journal. */
void fragments_free(struct fragments *f);

/* The journal has the record as number `number` of its session, and it was applied. Drops fragments
 * that it makes void: those before a first one of the same call, and those of a call whose commit
 * names none. */
void fragments_add(struct fragments *f, struct journal *j, struct str session_id, struct str record,
                   uint32_t number);

/* Drops the fragments of a call that will not commit. */
void fragments_drop(struct fragments *f, struct journal *j, struct str session_id, uint64_t call);

/* No call will: after a replay no call runs. All are in that journal. */
void fragments_drop_all(struct fragments *f, struct journal *j);

#endif
