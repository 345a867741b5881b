/* Loaded into a server, this writes down in order whatever happens to files below $SETTEE_RECORD_ROOT, into
 * $SETTEE_RECORD_FILE. A call and its record happen under one lock, so the order of records is that of the calls.
 *
 * A record: kind (1 byte), inode or 0 (8), offset or size or 0 (8), length (4) and bytes of a first text, length (4) and
 * bytes of a second one. Numbers as the processor has them.
 *
 * Calls that the C library makes itself (stdio) are not seen; the store's information log is written so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, MAKE_DIRECTORY, WRITE, SET_LENGTH, EXTEND, SYNC, RENAME, REMOVE, LINK };

#define REAL(name) ((__typeof__(&name))real(#name))
#define FILES 65536

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* 0: none of ours, 1: one of ours, 2: one of ours that is appended to. */
static unsigned char ours[FILES];
static int record = -1;
static const char *root;
static size_t root_length;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    root = getenv("SETTEE_RECORD_ROOT");
    const char *file = getenv("SETTEE_RECORD_FILE");
    if (!root || !file) return;
    root_length = strlen(root);
    record = REAL(open)(file, O_WRONLY | O_APPEND | O_CLOEXEC);
}

/* Answers the absolute path, or NULL if it is not below the root. */
static const char *within(int directory, const char *path, char *buffer) {
    if (record < 0 || !path) return NULL;
    if (path[0] != '/') {
        char link[64];
        ssize_t length;
        snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
        length = readlink(link, buffer, PATH_MAX / 2);
        if (length < 0) return NULL;
        snprintf(buffer + length, PATH_MAX - length, "/%s", path);
        path = buffer;
    }
    if (strncmp(path, root, root_length) != 0 || (path[root_length] != '/' && path[root_length] != 0)) return NULL;
    return path;
}

static void put(enum kind kind, uint64_t inode, uint64_t number, const void *a, size_t a_length, const void *b,
                size_t b_length) {
    unsigned char head[21], middle[4];
    uint32_t lengths[2] = {(uint32_t)a_length, (uint32_t)b_length};
    head[0] = kind;
    memcpy(head + 1, &inode, 8);
    memcpy(head + 9, &number, 8);
    memcpy(head + 17, &lengths[0], 4);
    memcpy(middle, &lengths[1], 4);
    struct iovec parts[4] = {{head, 21}, {(void *)a, a_length}, {middle, 4}, {(void *)b, b_length}};
    size_t whole = 25 + a_length + b_length;
    if (REAL(writev)(record, parts, 4) != (ssize_t)whole) abort();
}

static void put_paths(enum kind kind, uint64_t inode, const char *a, const char *b) {
    put(kind, inode, 0, a, strlen(a), b, b ? strlen(b) : 0);
}

static uint64_t inode_of(int file) {
    struct stat found;
    return fstat(file, &found) == 0 ? found.st_ino : 0;
}

static int open_any(int directory, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *mine = within(directory, path, buffer);
    int result, reason;
    if (!mine) {
        result = REAL(openat)(directory, path, flags, mode);
        if (result >= 0 && result < FILES) ours[result] = 0;
        return result;
    }
    pthread_mutex_lock(&lock);
    struct stat before;
    int was_there = stat(mine, &before) == 0;
    result = REAL(openat)(directory, path, flags, mode);
    reason = errno;
    if (result >= FILES) abort();
    if (result >= 0) {
        ours[result] = flags & O_APPEND ? 2 : 1;
        if (!was_there && (flags & O_CREAT)) put_paths(CREATE, inode_of(result), mine, NULL);
        else if (was_there && (flags & O_TRUNC)) put(SET_LENGTH, inode_of(result), 0, NULL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = reason;
    return result;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, last); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags, flags) return open_any(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags, flags) return open_any(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, flags) return open_any(at, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static int is_ours(int file) { return record >= 0 && file >= 0 && file < FILES && ours[file]; }

int close(int file) {
    if (file >= 0 && file < FILES) ours[file] = 0;
    return REAL(close)(file);
}

static ssize_t write_at(int file, const struct iovec *parts, int count, off_t offset) {
    ssize_t result;
    int reason;
    pthread_mutex_lock(&lock);
    off_t at = offset;
    struct stat before;
    if (offset < 0 && ours[file] == 2) at = fstat(file, &before) == 0 ? before.st_size : 0;
    else if (offset < 0) at = lseek(file, 0, SEEK_CUR);
    result = offset < 0 ? REAL(writev)(file, parts, count) : REAL(pwritev)(file, parts, count, offset);
    reason = errno;
    uint64_t inode = inode_of(file);
    ssize_t left = result;
    for (int i = 0; i < count && left > 0; i++) {
        size_t length = (size_t)left < parts[i].iov_len ? (size_t)left : parts[i].iov_len;
        put(WRITE, inode, (uint64_t)at, NULL, 0, parts[i].iov_base, length);
        at += length;
        left -= length;
    }
    pthread_mutex_unlock(&lock);
    errno = reason;
    return result;
}

ssize_t write(int file, const void *bytes, size_t length) {
    struct iovec part = {(void *)bytes, length};
    return is_ours(file) ? write_at(file, &part, 1, -1) : REAL(write)(file, bytes, length);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    return is_ours(file) ? write_at(file, parts, count, -1) : REAL(writev)(file, parts, count);
}
ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) {
    struct iovec part = {(void *)bytes, length};
    return is_ours(file) ? write_at(file, &part, 1, at) : REAL(pwrite)(file, bytes, length, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) { return pwrite(file, bytes, length, at); }

/* Calls on an open file: the record is made if the call succeeds. */
#define ON_FILE(call, kind, number) \
    if (!is_ours(file)) return call; \
    pthread_mutex_lock(&lock); \
    int result = call, reason = errno; \
    if (result == 0) put(kind, inode_of(file), number, NULL, 0, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    errno = reason; \
    return result;

int fsync(int file) { ON_FILE(REAL(fsync)(file), SYNC, 0) }
int fdatasync(int file) { ON_FILE(REAL(fdatasync)(file), SYNC, 0) }
int ftruncate(int file, off_t length) { ON_FILE(REAL(ftruncate)(file, length), SET_LENGTH, length) }
int ftruncate64(int file, off64_t length) { ON_FILE(REAL(ftruncate)(file, length), SET_LENGTH, length) }
int posix_fallocate(int file, off_t at, off_t length) { ON_FILE(REAL(posix_fallocate)(file, at, length), EXTEND, at + length) }
int posix_fallocate64(int file, off64_t at, off64_t length) { ON_FILE(REAL(posix_fallocate)(file, at, length), EXTEND, at + length) }
static int allocate(int file, int mode, off_t at, off_t length) {
    if (mode != 0) return REAL(fallocate)(file, mode, at, length); /* neither contents nor length */
    ON_FILE(REAL(fallocate)(file, mode, at, length), EXTEND, at + length)
}
int fallocate(int file, int mode, off_t at, off_t length) { return allocate(file, mode, at, length); }
int fallocate64(int file, int mode, off64_t at, off64_t length) { return allocate(file, mode, at, length); }

/* Calls on names. */
#define ON_NAMES(call, kind, a, b) \
    pthread_mutex_lock(&lock); \
    int result = call, reason = errno; \
    if (result == 0) put_paths(kind, 0, a, b); \
    pthread_mutex_unlock(&lock); \
    errno = reason; \
    return result;

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char a[PATH_MAX], b[PATH_MAX];
    const char *old = within(from_at, from, a), *new = within(to_at, to, b);
    if (!old || !new) return REAL(renameat2)(from_at, from, to_at, to, flags);
    ON_NAMES(REAL(renameat2)(from_at, from, to_at, to, flags), RENAME, old, new)
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return renameat2(from_at, from, to_at, to, 0); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    char a[PATH_MAX], b[PATH_MAX];
    const char *old = within(from_at, from, a), *new = within(to_at, to, b);
    if (!old || !new) return REAL(linkat)(from_at, from, to_at, to, flags);
    ON_NAMES(REAL(linkat)(from_at, from, to_at, to, flags), LINK, old, new)
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *path, int flags) {
    char buffer[PATH_MAX];
    const char *mine = within(at, path, buffer);
    if (!mine) return REAL(unlinkat)(at, path, flags);
    ON_NAMES(REAL(unlinkat)(at, path, flags), REMOVE, mine, NULL)
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    const char *mine = within(at, path, buffer);
    if (!mine) return REAL(mkdirat)(at, path, mode);
    pthread_mutex_lock(&lock);
    int result = REAL(mkdirat)(at, path, mode), reason = errno;
    struct stat made;
    if (result == 0) put_paths(MAKE_DIRECTORY, stat(mine, &made) == 0 ? made.st_ino : 0, mine, NULL);
    pthread_mutex_unlock(&lock);
    errno = reason;
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
