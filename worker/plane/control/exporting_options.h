/*
 * The options of an export that a request asks for: first from Accept, then from the query, then
 * from the body.
 */
#ifndef RG_CONTROL_EXPORTING_OPTIONS_H
#define RG_CONTROL_EXPORTING_OPTIONS_H

#include <stdbool.h>

#include "worker/export/build/export.h"

struct json;
struct service;
struct service_request;

/* Reads the options. `otherwise` is the format if the request names none. EXPORT_MILES starts from
 * the defaults of /samples, whatever Accept says. *ret_score becomes the body's member `score`
 * (finalize), or NULL. The options and the score borrow from the arena, which must outlive them.
 * Returns -1 with an error that names the option. */
int exporting_options(const struct service_request *r, enum export_format otherwise,
                      struct arena *a, struct export_options *ret, const struct json **ret_score,
                      struct err *e);

/* Reads the options of a request for one branch, token by token, on top of those of
 * exporting_options. */
void exporting_view_options(const struct service_request *r, struct arena *a,
                            struct export_options *o);

/* Reports whether the ids are those of a model whose tokenizer the gateway does not have, so that
 * it cannot encode or decode them. */
bool exporting_strange_ids(const struct service *a);

#endif
