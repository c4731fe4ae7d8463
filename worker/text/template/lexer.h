/*
 * Jinja source to tokens: data and expressions. White-space control (trim_blocks, lstrip_blocks,
 * the - and + marks), comments and raw blocks are handled already. Names, strings (unescaped) and
 * numbers are texts in the arena or slices of the source.
 */
#ifndef RG_TEMPLATE_LEXER_H
#define RG_TEMPLATE_LEXER_H

#include "common/base/arena.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "worker/text/template/template.h"

enum token_kind {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP, /* `op` says which */
};

/* Two-character operators; the others are their own character. */
enum { TOP_EQ = 256, TOP_NE, TOP_LE, TOP_GE, TOP_FLOORDIV, TOP_POW };

struct token {
    enum token_kind kind;
    int op;
    uint32_t line;
    struct str text;
};

struct token_list {
    struct token *at;
    size_t n, cap;
};

/* Cuts the source (newlines normalised, in the arena) into tokens. The list ends with T_EOF. The
 * caller frees it (vec_done), also on failure. */
int lexer_run(struct arena *a, struct str source, struct token_list *ret,
              struct template_error *error);

/* Sets a compile error; returns -1. */
int compile_fail(struct template_error *error, uint32_t line, const char *kind, const char *fmt,
                 ...) RG_PRINTF(4, 5);

#endif
