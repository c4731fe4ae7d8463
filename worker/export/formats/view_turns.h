/*
 * What the viewer's file says of a trajectory's turns: offered tools, and trainers' logprobs.
 */
#ifndef RG_EXPORT_VIEW_TURNS_H
#define RG_EXPORT_VIEW_TURNS_H

struct export;
struct trajectory;

/* Writes the tools that the first turn was offered, and those of each turn with other tools than
 * the turn before, to the member `tools` of the file's metadata. Each list is written once, and
 * its number of tools only where all lists would be longer than 1 MiB. */
void view_write_tools(struct export *x, const struct trajectory *t);

/* Returns one logprob for each token of the response, of the version in the export's options. NaN
 * where the trainer reported nothing; NULL if it reported no turn. In the export's arena. */
float *view_collect_logprobs(struct export *x, const struct trajectory *t);

/* Adds the versions that trainers reported of the trajectory's turns, each once, to the member
 * `reported_versions` of the file's metadata. */
void view_write_versions(struct export *x, const struct trajectory *t);

#endif
