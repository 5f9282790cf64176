"""System calls of the IoLoop."""

from libc.stdint cimport int64_t, uint32_t

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout)
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLL_CTL_MOD
        EPOLL_CLOEXEC

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "sys/socket.h" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void* buf, size_t n, int flags)
    ssize_t send(int fd, const void* buf, size_t n, int flags)
    ssize_t sendmsg(int fd, const msghdr* msg, int flags)
    int shutdown(int fd, int how)
    enum:
        MSG_NOSIGNAL
        MSG_DONTWAIT
        SHUT_WR

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    enum:
        CLOCK_MONOTONIC
        CLOCK_REALTIME


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * <int64_t>1_000_000_000 + now.tv_nsec


cdef inline int64_t wall_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec
