/*
 * The last words of a program of ours that has ended, from its output.
 */
#ifndef RG_SUPERVISOR_LAST_WORDS_H
#define RG_SUPERVISOR_LAST_WORDS_H

struct buf;

/* Appends the last line about an error in the file, or else its last line. */
void last_words_read(int fd, struct buf *out);

#endif
