/*
 * Makes the options of the worker's parts from the settings of a run. Values only.
 */
#ifndef RG_WORKER_SETUP_H
#define RG_WORKER_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct call_env;
struct config;
struct engine_home;
struct engine_options;
struct heritage;
struct journal_options;
struct model;
struct model_options;
struct session_defaults;

struct model_options setup_model(const struct config *c);

/* Appends a line for each setting that demands what the model or the engines do not have. */
void setup_warn(const struct config *c, const struct model *m, struct buf *warnings);

/* Returns the defaults of new sessions. all_text: every engine is asked with messages; each call is
 * then a timeline of its own, because the upstream renders each anew. */
struct session_defaults setup_sessions(const struct config *c, bool all_text);

/* Returns the home of the engines. It borrows config and folder. Without --engine the home has only
 * the built-in engine. */
struct engine_home setup_engine_home(const struct heritage *h);

/* Returns the options, except the engines themselves. */
struct engine_options setup_engines(const struct config *c, const struct model *m);

/* Writes the folder's path to `dir`. Returns -1 if it is too long. */
int setup_journal(const struct heritage *h, uint32_t index, char *dir, size_t size,
                  struct journal_options *ret);

/* Copies the settings to env's fields. Called again after a reload. */
void setup_calls(struct call_env *env, const struct config *c, const struct model *m);

/* Returns the milliseconds that a thread may take for what one request fetches; 0: no limit. The
 * thread has its own time limit; this one is for work that does not check that limit. */
uint64_t setup_fetch_limit(const struct config *c);

#endif
