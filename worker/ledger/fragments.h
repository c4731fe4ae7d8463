/*
 * struct fragments: the fragments of calls (RECORD_BULK) that no commit has named yet. Fragments
 * that no commit can name any longer are dropped from the journal, live and after a replay. No
 * record is written for that, because it follows from the records.
 */
#ifndef RG_LEDGER_FRAGMENTS_H
#define RG_LEDGER_FRAGMENTS_H

#include <stdint.h>

#include "common/base/str.h"

struct fragments;
struct journal;

struct fragments *fragments_new(void);

/* Frees f. The fragments stay in the journal. Accepts NULL. */
void fragments_free(struct fragments *f);

/* Handles an applied record, which the journal has under this number. Drops fragments that it makes
 * void: those before a first one of the same call, and those of a call whose commit names none. */
void fragments_add(struct fragments *f, struct journal *j, struct str session_id, struct str record,
                   uint32_t number);

/* Drops the fragments of a call that will not commit. */
void fragments_drop(struct fragments *f, struct journal *j, struct str session_id, uint64_t call);

/* Drops all fragments, which are in this journal. For use after a replay, when no call runs. */
void fragments_drop_all(struct fragments *f, struct journal *j);

#endif
