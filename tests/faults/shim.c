/* Preloaded (LD_PRELOAD): counts the changes of files below a folder, and lets one of them fail, or kills
   the process there. fault_arm begins to count; changes before are made as usual. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static atomic_long count;
static long at;
static int error; /* to fail with; 0: kill */

void fault_arm(const char *folder, long number, int with) {
    strncpy(root, folder, PATH_MAX - 1);
    at = number;
    error = with;
    atomic_store(&count, 0);
}

long fault_count(void) { return atomic_load(&count); }

static int inside(const char *path) {
    return root[0] && path && strncmp(path, root, strlen(root)) == 0;
}

static int opened(int fd) {
    char link[64], path[PATH_MAX];
    if (!root[0])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return inside(path);
}

static int fails(int concerned) {
    if (!concerned || atomic_fetch_add(&count, 1) + 1 != at)
        return 0;
    if (!error) {
        kill(getpid(), SIGKILL);
        pause();
    }
    errno = error;
    return 1;
}

#define NEXT(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write);
    return fails(opened(fd)) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t place) {
    NEXT(pwrite);
    return fails(opened(fd)) ? -1 : real(fd, data, size, place);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t place) {
    NEXT(pwrite64);
    return fails(opened(fd)) ? -1 : real(fd, data, size, place);
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    NEXT(writev);
    return fails(opened(fd)) ? -1 : real(fd, parts, number);
}

size_t fwrite(const void *data, size_t size, size_t number, FILE *file) {
    NEXT(fwrite);
    return fails(opened(fileno(file))) ? 0 : real(data, size, number, file);
}

ssize_t sendfile(int to, int from, off_t *place, size_t size) {
    NEXT(sendfile);
    return fails(opened(to)) ? -1 : real(to, from, place, size);
}

ssize_t sendfile64(int to, int from, off64_t *place, size_t size) {
    NEXT(sendfile64);
    return fails(opened(to)) ? -1 : real(to, from, place, size);
}

int fsync(int fd) {
    NEXT(fsync);
    return fails(opened(fd)) ? -1 : real(fd);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    return fails(opened(fd)) ? -1 : real(fd);
}

int ftruncate(int fd, off_t size) {
    NEXT(ftruncate);
    return fails(opened(fd)) ? -1 : real(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    NEXT(ftruncate64);
    return fails(opened(fd)) ? -1 : real(fd, size);
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    return fails(inside(to)) ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    NEXT(renameat);
    return fails(inside(to)) ? -1 : real(from_folder, from, to_folder, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    NEXT(renameat2);
    return fails(inside(to)) ? -1 : real(from_folder, from, to_folder, to, flags);
}

int link(const char *from, const char *to) {
    NEXT(link);
    return fails(inside(to)) ? -1 : real(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    NEXT(linkat);
    return fails(inside(to)) ? -1 : real(from_folder, from, to_folder, to, flags);
}

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    return fails(inside(path)) ? -1 : real(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    NEXT(mkdirat);
    return fails(inside(path)) ? -1 : real(folder, path, mode);
}
