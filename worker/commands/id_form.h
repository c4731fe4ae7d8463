/*
 * The form of session ids, for commands that read journals and take no settings.
 */
#ifndef RG_COMMANDS_ID_FORM_H
#define RG_COMMANDS_ID_FORM_H

/* Sets the form that the settings in force have: environment and the file that it names. */
void id_form_read(void);

#endif
