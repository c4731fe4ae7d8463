/* Settings of a fleet (--fleet...): checks, and values that depend on the machine. */
#ifndef RG_SUPERVISOR_FLEET_SETTINGS_H
#define RG_SUPERVISOR_FLEET_SETTINGS_H

struct buf;
struct config;
struct err;

/* Appends a line for each setting that is wrong, or that contradicts --fleet. */
void fleet_settings_check(const struct config *c, struct buf *mistakes);

/* Fills in the node's name and address. `listens`: HOST:PORT of the gateway. -1 with ERR_CONFIG. */
int fleet_settings_resolve(struct config *c, const char *listens, struct err *e);

/* Copies to freshly loaded settings what the running gateway has filled in. Appends a line for each
 * that would be applied and contradicts its fleet. */
void fleet_settings_keep(const struct config *live, struct config *fresh, struct buf *mistakes);

#endif
