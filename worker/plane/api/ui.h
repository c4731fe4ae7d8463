/*
 * The viewer's files below /ui. They contain no data and need no key: the page asks its user for
 * one and fetches its data from the other routes.
 */
#ifndef RG_API_UI_H
#define RG_API_UI_H

#include <stdbool.h>

struct service_request;
struct str;

/* Answers GET /ui with the page. */
void ui_page(struct service_request *r);

/* Reports whether the path is one of the files below /ui/. */
bool ui_holds(struct str path);

/* Answers with a file of the page; 404 if there is none of that name, 405 for a wrong method. */
void ui_file(struct service_request *r);

#endif
