/* env NAME=VALUE... PROGRAM ARGUMENT... */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int i = 1;
    for (; i < argc && strchr(argv[i], '=') != NULL && argv[i][0] != '/'; i++)
        putenv(argv[i]);
    execv(argv[i], argv + i);
    return 127;
}
