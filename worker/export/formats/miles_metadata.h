/*
 * Members of a sample's metadata for miles' dashboards and metrics.
 */
#ifndef RG_EXPORT_MILES_METADATA_H
#define RG_EXPORT_MILES_METADATA_H

struct drift;
struct json_out;
struct trajectory;

/* Appends `lifecycle`: start and end of each turn, in seconds. One turn is an object, several are a
 * list. */
void miles_put_lifecycle(const struct trajectory *t, struct json_out *o);

/* Appends `tito_session_mismatch`: how the tokens differ from a new rendering. Appends nothing if
 * that is unknown. */
void miles_put_mismatch(const struct drift *d, struct json_out *o);

#endif
