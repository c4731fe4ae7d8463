/*
 * Data about a trajectory's turns in the viewer's file: offered tools, and trainers' logprobs.
 */
#ifndef RG_EXPORT_VIEW_TURNS_H
#define RG_EXPORT_VIEW_TURNS_H

struct export;
struct trajectory;

/* Writes the tools offered to the first turn, and those of each turn whose tools differ from the
 * turn before, to the member `tools` of the file's metadata. Each list is written once. If all
 * lists would be longer than 1 MiB, a list that does not fit has only its number of tools. */
void view_write_tools(struct export *x, const struct trajectory *t);

/* Returns one logprob for each token of the response, for the version in the export's options.
 * NaN if the trainer reported none for the token; NULL if it reported no turn. In the export's
 * arena. */
float *view_collect_logprobs(struct export *x, const struct trajectory *t);

/* Adds the versions for which trainers reported logprobs of the trajectory's turns, each once, to
 * the member `reported_versions` of the file's metadata. */
void view_write_versions(struct export *x, const struct trajectory *t);

#endif
