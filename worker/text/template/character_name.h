/*
 * Names of characters, as in `\N{NAME}` of Python 3.11's text literals (Unicode 14).
 * scripts/embed_names.py packs the table into the binary.
 */
#ifndef RG_TEMPLATE_CHARACTER_NAME_H
#define RG_TEMPLATE_CHARACTER_NAME_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* Returns the code point of the name, or of one of Unicode's aliases; -1: unknown. The case of
 * ASCII letters does not matter, except, as in Python, in names of Hangul syllables and unified
 * ideographs. The first call unpacks the table, which the process keeps (1.4 MB). May be called on
 * any thread. */
int32_t character_by_name(struct str name);

/* The packed table: character_names_n lines; see scripts/embed_names.py. */
extern const unsigned char character_names_packed[];
extern const size_t character_names_packed_len, character_names_text_len, character_names_n;

#endif
