/*
 * sampling_params.engine_extra: fields that a trainer gives for the engine's own requests, as they
 * are. Which ones each kind refuses stands with its adapter (adapter.h); here is the check. Pure.
 */
#ifndef RG_ENGINE_EXTRA_H
#define RG_ENGINE_EXTRA_H

#include <stdbool.h>

#include "common/base/err.h"

struct engine_adapter;
struct json;
struct json_out;
struct sampling;

/* Whether requests of this kind can have the fields of `extra` (NULL: there are none). -1:
 * ERR_INVALID, e->param names the field. */
int engine_extra_check(const struct engine_adapter *kind, const struct json *extra, struct err *e);

/* Whether requests of this kind have a field for each of the parameters, engine_extra included. */
bool engine_takes_fields(const struct engine_adapter *kind, const struct sampling *s);

/* Writes them behind our own members of the object that o is in: those of the request, and with
 * `inner` those of its sampling_params. extra may be NULL. */
void engine_extra_write(struct json_out *o, const struct json *extra);
void engine_extra_write_inner(struct json_out *o, const struct json *extra);

#endif
