/*
 * struct kind_probe: finds out whether a server that lacks its kind's settings is an engine of a
 * different kind. Each kind is known by paths that only it serves.
 */
#ifndef RG_WIRE_KIND_PROBE_H
#define RG_WIRE_KIND_PROBE_H

struct json;
struct remote;

/* Starts the probe, unless r->kind_probe is set. `done` is called once, later, with the real kind,
 * or NULL if nothing shows a different kind than r's. */
void kind_probe_begin(struct remote *r, void (*done)(struct remote *r, const char *other_kind));

/* Ends the probe without a call and sets r->kind_probe to NULL. */
void kind_probe_cancel(struct remote *r);

/* Returns the kind that a list of models (/v1/models) shows by its owner, if it is not `kind`; else
 * NULL. */
const char *kind_of_models(const struct json *models, const char *kind);

#endif
