/* Makes file calls of a program fail, by LD_PRELOAD, while a file tells it to.
 *
 * The file $FAULTY_DISK holds one line, "sync TEXT" or "full TEXT": syncs of files whose path has
 * TEXT in it fail with EIO, or writes to them with ENOSPC. No such file: nothing fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int strikes(const char *kind, int fd) {
    char line[256], link[64], path[4096];
    const char *name = getenv("FAULTY_DISK");
    FILE *told = name ? fopen(name, "r") : NULL;
    if (told == NULL)
        return 0;
    char *text = fgets(line, sizeof line, told) ? line + strlen(kind) + 1 : NULL;
    fclose(told);
    if (text == NULL || strncmp(line, kind, strlen(kind)) != 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        return 0;
    path[n] = 0;
    return strstr(path, text) != NULL;
}

#define FAIL(error) do { errno = error; return -1; } while (0)

int fdatasync(int fd) {
    static int (*real)(int);
    if (strikes("sync", fd))
        FAIL(EIO);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (strikes("sync", fd))
        FAIL(EIO);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (strikes("full", fd))
        FAIL(ENOSPC);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    return real(fd, data, n, at);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return pwrite64(fd, data, n, at);
}
