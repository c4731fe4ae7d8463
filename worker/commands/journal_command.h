/*
 * `rollgate journal`: inspects and cleans up the journal of a worker that is not running.
 *   rollgate journal check DIR...    checks every record; exit 1 on damage or a torn tail
 *   rollgate journal dump DIR...     prints one JSON line per record
 *   rollgate journal compact DIR [--tombstone-ttl D] [--export-retention D]
 *                                    removes records that no session or tombstone needs
 *   rollgate journal repair DIR      leaves out damaged or missing records, and keeps the old files
 * DIR is a worker's folder (STATE_DIR/worker-0). check and dump also accept a state folder.
 */
#ifndef RG_COMMANDS_JOURNAL_COMMAND_H
#define RG_COMMANDS_JOURNAL_COMMAND_H

/* Runs the command; argv[0] is "journal". Returns the exit status: 0, 1 (damage or an error) or 2
 * (usage). */
int journal_command(int argc, char **argv);

#endif
