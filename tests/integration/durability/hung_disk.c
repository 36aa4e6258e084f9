/* Let fsync and fdatasync of files whose path has $HUNG_NAMES in it wait as long as the file
 * $HUNG_DISK exists. Whoever waits leaves a file beside it, named after the thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_while_hung(int fd) {
    const char *hung = getenv("HUNG_DISK"), *names = getenv("HUNG_NAMES");
    char link[64], path[4096], mark[4096];
    if (!hung || !names || access(hung, F_OK) != 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (!strstr(path, names)) return;
    snprintf(mark, sizeof mark, "%s.%ld", hung, (long)syscall(SYS_gettid));
    int made = open(mark, O_CREAT | O_WRONLY, 0666);
    if (made >= 0) close(made);
    while (access(hung, F_OK) == 0) usleep(5000);
    unlink(mark);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_while_hung(fd);
    return real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_while_hung(fd);
    return real(fd);
}
