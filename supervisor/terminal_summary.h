/*
 * The five lines that a person needs at a terminal: address, viewer, keys, state folder, engine.
 * They go to standard output if that is a terminal, after the first start, once.
 */
#ifndef RG_SUPERVISOR_TERMINAL_SUMMARY_H
#define RG_SUPERVISOR_TERMINAL_SUMMARY_H

struct supervisor;

/* Plans the lines, unless standard output is no terminal or this process is a trial or an upgrade.
 * Call it when all processes serve. */
void terminal_summary_plan(struct supervisor *s);

/* Prints planned lines as soon as an engine answers, or the wait for one is over. */
void terminal_summary_advance(struct supervisor *s);

#endif
