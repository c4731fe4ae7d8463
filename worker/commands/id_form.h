/*
 * Sets the form of session ids for commands that read journals and have no settings of their own.
 */
#ifndef RG_COMMANDS_ID_FORM_H
#define RG_COMMANDS_ID_FORM_H

/* Sets the form of session ids from the environment and from the settings file that it names. */
void id_form_read(void);

#endif
