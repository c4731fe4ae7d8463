/*
 * Character facts for Python's str methods, made by scripts/make_pystr.py. Flags:
 * pystr_classes[pystr_blocks[pystr_index[cp / 128]][cp % 128]]; code points past the index belong
 * to its last block. Case maps are runs (start, end, step, delta) plus `specials` for characters
 * whose mapping is longer than one character.
 */
#ifndef RG_TEMPLATE_PYSTR_DATA_H
#define RG_TEMPLATE_PYSTR_DATA_H

#include <stdint.h>

enum {
    PYSTR_ALPHA = 1 << 0,
    PYSTR_DECIMAL = 1 << 1,
    PYSTR_DIGIT = 1 << 2,
    PYSTR_NUMERIC = 1 << 3,
    PYSTR_SPACE = 1 << 4,
    PYSTR_PRINTABLE = 1 << 5,
    PYSTR_UPPER = 1 << 6,
    PYSTR_LOWER = 1 << 7,
    PYSTR_TITLE = 1 << 8,
    PYSTR_CASE_IGNORABLE = 1 << 9,
    PYSTR_ID_START = 1 << 10,
    PYSTR_ID_CONTINUE = 1 << 11,
};

struct pystr_run {
    uint32_t start, end;
    int32_t step, delta;
};

struct pystr_special {
    uint32_t cp;
    char kind; /* 'u', 'l', 't', 'f' (casefold) */
    const char *text;
};

extern const uint16_t pystr_classes[];
extern const uint32_t pystr_index_n;
extern const uint16_t pystr_index[];
extern const uint8_t pystr_blocks[][128];
extern const struct pystr_run pystr_upper[], pystr_lower[], pystr_title[], pystr_fold[];
extern const uint32_t pystr_upper_n, pystr_lower_n, pystr_title_n, pystr_fold_n;
extern const struct pystr_special pystr_specials[];
extern const uint32_t pystr_specials_n;

#endif
