/*
 * `rollgate journal`: looking at and tidying the journal of a worker that is not running.
 *   rollgate journal check DIR...    checks every record; exit 1 on damage or a torn tail
 *   rollgate journal dump DIR...     one JSON line per record
 *   rollgate journal compact DIR [--tombstone-ttl D] [--export-retention D]
 *                                    removes what no session or tombstone needs any more
 *   rollgate journal repair DIR      leaves out what is damaged or missing, and keeps the old files
 * DIR is a worker's folder (STATE_DIR/worker-0); check and dump also take a state folder.
 */
#ifndef RG_COMMANDS_JOURNAL_COMMAND_H
#define RG_COMMANDS_JOURNAL_COMMAND_H

/* argv[0] is "journal". Returns the exit status. */
int journal_command(int argc, char **argv);

#endif
