/*
 * The last words of a program of ours that ended, out of what it printed.
 */
#ifndef RG_SUPERVISOR_LAST_WORDS_H
#define RG_SUPERVISOR_LAST_WORDS_H

struct buf;

/* Appends the last line about an error in the file, else its last line. */
void last_words_read(int fd, struct buf *out);

#endif
