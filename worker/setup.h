/*
 * From the settings of one run to the options of the worker's parts. Values only.
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

/* Appends a line for each setting that asks for what the model or the engines cannot give. */
void setup_warn(const struct config *c, const struct model *m, struct buf *warnings);

/* all_text: every engine is asked with messages; then each call is a timeline of its own, for the
 * upstream renders each anew. */
struct session_defaults setup_sessions(const struct config *c, bool all_text);

/* Borrows config and folder; without --engine it is the built-in engine. */
struct engine_home setup_engine_home(const struct heritage *h);

/* All but the engines themselves. */
struct engine_options setup_engines(const struct config *c, const struct model *m);

/* The folder's path is written into `dir`. -1 when it is too long. */
int setup_journal(const struct heritage *h, uint32_t index, char *dir, size_t size,
                  struct journal_options *ret);

/* The settings among env's fields; called again after a reload. */
void setup_calls(struct call_env *env, const struct config *c, const struct model *m);

/* Milliseconds that a thread may take for what one request has fetched: it looks at its own time
 * limit, this one is for what does not. 0: for ever. */
uint64_t setup_fetch_limit(const struct config *c);

#endif
