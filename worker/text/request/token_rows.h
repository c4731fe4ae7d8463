/*
 * struct token_rows: an array that an engine returns with an answer. It has one row for each token
 * that the engine has forwarded: all tokens of prompt and answer except the last. A row has `topk`
 * numbers for each of `layers` layers. The stored rows of an answer begin after the rows that its
 * session already has.
 */
#ifndef RG_REQUEST_TOKEN_ROWS_H
#define RG_REQUEST_TOKEN_ROWS_H

#include <stdint.h>

#include "common/base/str.h"

enum rows_kind {
    ROWS_EXPERTS, /* experts to which each layer of a mixture routed the token */
    ROWS_INDEXER, /* earlier positions that each layer's indexer chose for its sparse attention */
    ROWS_KINDS
};

struct token_rows {
    struct str
        block; /* little-endian, C order [rows, layers, topk]; absent: no rows (with a `from`: the
                  engine was asked for them); empty: lost, because the engine computed them again */
    uint32_t from, rows;   /* position of the first row; number of rows */
    uint32_t layers, topk; /* 0: unknown */
};

#endif
