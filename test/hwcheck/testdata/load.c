/* The load of the bundle, at the time at which the scenario has it: waits for its line in /tmp/slots ("MODE FIRST-ARGUMENT UNIX-TIME
 * NEW-ARGUMENT"), and runs the real one. The scenario's GPU is as busy as it says; so is the load, whatever else runs here. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char mode[32], first[32], argument[32];
    double at;
    FILE *f = fopen("/tmp/slots", "r");
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    while (f != NULL && fscanf(f, "%31s %31s %lf %31s", mode, first, &at, argument) == 4) {
        if (argc > 3 && strcmp(mode, argv[1]) == 0 && strcmp(first, argv[3]) == 0) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            double left = at - now.tv_sec - now.tv_nsec / 1e9;
            if (left > 0)
                usleep((useconds_t)(left * 1e6));
            argv[3] = strdup(argument);
            if (strcmp(mode, "spin") == 0 && strcmp(first, "0.3") == 0)
                fclose(fopen("/tmp/busy", "w"));
            else
                unlink("/tmp/busy");
            break;
        }
    }
    argv[0] = "/bundle/load";
    return execv(argv[0], argv);
}
