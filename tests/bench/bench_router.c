/* bench: rg_supervisor */
/* `rollgate route` as a program of its own, so that the relay can be measured and tested by itself.
 */
#include "supervisor/commands.h"

int main(int argc, char **argv)
{
    return route_command(argc, argv);
}
