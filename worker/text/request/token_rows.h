/*
 * struct token_rows: an array that an engine tells beside an answer, with a row for each token that
 * it has forwarded: all of prompt and answer but the last. A row has `topk` numbers of each of
 * `layers` layers. What is kept of an answer begins behind the rows that its session has already.
 */
#ifndef RG_REQUEST_TOKEN_ROWS_H
#define RG_REQUEST_TOKEN_ROWS_H

#include <stdint.h>

#include "common/base/str.h"

enum rows_kind {
    ROWS_EXPERTS, /* which experts each layer of a mixture routed the token to */
    ROWS_INDEXER, /* which earlier positions each layer's indexer chose for its sparse attention */
    ROWS_KINDS
};

struct token_rows {
    struct str block;      /* little-endian, C order [rows, layers, topk]; absent: none, and with a
                              `from` the engine was asked for them; empty: the engine computed them
                              again, so those of the sampling are lost */
    uint32_t from, rows;   /* the position of the first row, and how many there are */
    uint32_t layers, topk; /* 0: not known */
};

#endif
