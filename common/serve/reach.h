/* The reach of a request for lists, orders or events, which its query contains: "local=1" is sent
 * between the processes of a gateway, "here=1" between nodes. */
#ifndef RG_SERVE_REACH_H
#define RG_SERVE_REACH_H

struct exchange;

enum reach {
    REACH_PROCESS, /* the process that gets it */
    REACH_NODE,    /* all processes of this gateway */
    REACH_FLEET    /* all nodes of the fleet */
};

/* Returns the reach that the query asks for. The default is the whole fleet. */
enum reach reach_of_request(const struct exchange *x);

#endif
