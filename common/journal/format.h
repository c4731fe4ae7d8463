/* The format of journals, which covers framing and records. */
#ifndef RG_JOURNAL_FORMAT_H
#define RG_JOURNAL_FORMAT_H

/* The first line of a manifest: name, number of the format, first version that reads it. */
extern const char journal_format_line[];

#endif
