/* Settings of a fleet (--fleet...): checks, and values that depend on the machine. */
#ifndef RG_SUPERVISOR_FLEET_SETTINGS_H
#define RG_SUPERVISOR_FLEET_SETTINGS_H

struct buf;
struct config;

/* Appends a line for each setting that is wrong, or that contradicts --fleet. */
void fleet_settings_check(const struct config *c, struct buf *mistakes);

#endif
