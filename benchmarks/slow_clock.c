/* A monotonic clock for a process under callgrind, preloaded by benchmarks/instructions.py.
 *
 * Under callgrind a process computes about SLOWDOWN times slower, but its clock does not: budgets
 * and timers in milliseconds would take effect after a fraction of the usual work. This clock
 * advances by the CPU time of the process divided by SLOWDOWN, and by the time that the main thread waits for
 * sockets and for the disk. It does not advance while other processes use the CPU. Each poll that
 * finds nothing takes POLL_NS: how often a server polls depends on its clients, and is not counted.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOWDOWN 50
#define POLL_NS 20000
#define SECOND_NS 1000000000LL

static int64_t waited_ns;

/* Without the C library, so that reading the clock costs about as much as it does outside. */
static inline long read_clock(clockid_t clock, struct timespec *now) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)SYS_clock_gettime), "D"((long)clock), "S"(now)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(SYS_clock_gettime, clock, now);
#endif
}

static inline int64_t real_ns(clockid_t clock) {
    struct timespec now;
    read_clock(clock, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static inline int64_t slow_ns(void) {
    static int64_t start_ns;
    if (start_ns == 0) start_ns = real_ns(CLOCK_MONOTONIC);
    return start_ns + real_ns(CLOCK_PROCESS_CPUTIME_ID) / SLOWDOWN + waited_ns;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return (int)read_clock(clock, out);
    int64_t now = slow_ns();
    out->tv_sec = now / SECOND_NS;
    out->tv_nsec = now % SECOND_NS;
    return 0;
}

static int64_t wait_start(void) {
    return getpid() == gettid() ? real_ns(CLOCK_MONOTONIC) : 0;
}

static void wait_end(int64_t start) {
    if (start != 0) waited_ns += real_ns(CLOCK_MONOTONIC) - start;
}

int epoll_pwait(int epoll, struct epoll_event *events, int count, int timeout,
                const sigset_t *mask) {
    int64_t start = timeout != 0 ? wait_start() : 0;
    int found = (int)syscall(SYS_epoll_pwait, epoll, events, count, timeout, mask, 8);
    wait_end(start);
    if (timeout == 0 && found == 0) waited_ns += POLL_NS;
    return found;
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout) {
    return epoll_pwait(epoll, events, count, timeout, NULL);
}

static int sync_waiting(long call, int file) {
    int64_t start = wait_start();
    int failed = (int)syscall(call, file);
    wait_end(start);
    return failed;
}

int fsync(int file) { return sync_waiting(SYS_fsync, file); }
int fdatasync(int file) { return sync_waiting(SYS_fdatasync, file); }
