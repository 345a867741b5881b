/* Loaded into a server, this lets calls on files of the engine fail as long as the file $SETTEE_FAULTS holds their name:
 * "open" with EMFILE, "write" with ENOSPC, "sync" with EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Without the functions below. */
static int fails(const char *call) {
    const char *path = getenv("SETTEE_FAULTS");
    char found[64] = {0};
    if (!path) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = syscall(SYS_read, file, found, sizeof found - 1);
    syscall(SYS_close, file);
    return length > 0 && strstr(found, call) != NULL;
}

static int is_engine_file(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/engine/") != NULL;
}

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
    if (strstr(path, "/engine/") && fails("open")) { errno = EMFILE; return -1; }
    return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
    if (strstr(path, "/engine/") && fails("open")) { errno = EMFILE; return -1; }
    return REAL(open64)(path, flags, mode);
}

ssize_t write(int file, const void *bytes, size_t length) {
    if (is_engine_file(file) && fails("write")) { errno = ENOSPC; return -1; }
    return REAL(write)(file, bytes, length);
}
ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) {
    if (is_engine_file(file) && fails("write")) { errno = ENOSPC; return -1; }
    return REAL(pwrite)(file, bytes, length, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) { return pwrite(file, bytes, length, at); }

int fsync(int file) {
    if (is_engine_file(file) && fails("sync")) { errno = EIO; return -1; }
    return REAL(fsync)(file);
}
int fdatasync(int file) {
    if (is_engine_file(file) && fails("sync")) { errno = EIO; return -1; }
    return REAL(fdatasync)(file);
}
