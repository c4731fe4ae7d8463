/* The format of journals: framing and records together. */
#ifndef RG_JOURNAL_FORMAT_H
#define RG_JOURNAL_FORMAT_H

/* The first line of a manifest: its name, the format, and the first version that reads it. */
extern const char journal_format_line[];

#endif
