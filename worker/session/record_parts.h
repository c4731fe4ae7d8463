/*
 * What a record has to do with parts: records of a call's long new texts, large answers, or long
 * blocks of these, which stand before its commit (RECORD_TEXTS, RECORD_ANSWERS, RECORD_BLOCKS) and
 * mean nothing without it. Looked at without applying it, so that whoever keeps records knows which
 * parts no commit can name any more.
 */
#ifndef RG_SESSION_RECORD_PARTS_H
#define RG_SESSION_RECORD_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

enum part_kind { PART_TEXTS, PART_ANSWERS, PART_BLOCKS, PART_KINDS };

enum parts_sense {
    PARTS_NOTHING, /* no part, and it says nothing of them */
    PARTS_ONE,     /* a part of a call */
    PARTS_NAMED,   /* the commit of a call */
    PARTS_OVER,    /* whatever parts the session has, no commit comes for them */
};

struct record_parts {
    enum parts_sense sense;
    uint64_t call;
    enum part_kind kind; /* PARTS_ONE */
    bool first;          /* PARTS_ONE: those of this kind begin with it, anew if there were some */
    bool behind_answers; /* PARTS_ONE, first blocks: the answers that there are stay the call's */
    bool named[PART_KINDS]; /* PARTS_NAMED: the parts of this kind are the call's from now on */
};

void session_record_parts(struct str record, struct record_parts *ret);

#endif
