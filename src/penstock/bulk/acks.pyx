"""Answers to numbered publishes: which are still to come, kept in C for as many as are in flight.

Every publish has a number, the last token of the subject its answer comes to. An ordinary answer
(stored by the stream we mean, or a duplicate of what it has) marks its number and is done with;
whatever else is said about a number is told like any other message, for Python to judge.

Invariant: numbers below `oldest` are answered, those from `next` on were not sent, and at most
`slots` lie between, so a slot never stands for two.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

from penstock.bulk.intake cimport STEP_MESSAGE, WANTING, Intake, Step, number_in

cdef enum:
    SLOTS_MAX = 1048576
    DUPLICATE_BYTES = 12


cdef class Window:
    """The publishes in flight. `stream` is where they are to be stored; empty for any."""

    def __cinit__(self, int64_t slots, str stream=""):
        if not 1 <= slots <= SLOTS_MAX:
            raise ValueError(f"a window has 1 to {SLOTS_MAX} slots")
        self.slots = slots
        self.waiting = <unsigned char*> calloc(slots, 1)
        if self.waiting == NULL:
            raise MemoryError
        self.ack_start = b'{"stream":"%b",' % stream.encode() if stream else b'{"stream":'
        self.start = self.ack_start
        self.start_bytes = len(self.ack_start)

    def __dealloc__(self):
        free(self.waiting)

    @property
    def room(self):
        """How many more may be sent."""
        return self.slots - (self.next - self.oldest)

    def open(self, int64_t count):
        """So many more are on their way; the number of the first."""
        cdef int64_t number
        if not 0 <= count <= self.room:
            raise ValueError("more publishes than the window has room for")
        first = self.next
        for number in range(self.next, self.next + count):
            self.waiting[number % self.slots] = 1
        self.next += count
        return first

    def is_waiting(self, int64_t number):
        return self.awaits(number)

    def settle(self, int64_t number):
        """Nothing more is expected for this number; False if nothing was."""
        return self.answer(number)

    cdef bint awaits(self, int64_t number) noexcept nogil:
        return self.oldest <= number < self.next and self.waiting[number % self.slots] == 1

    cdef bint answer(self, int64_t number) noexcept nogil:
        if not self.awaits(number):
            return False
        self.waiting[number % self.slots] = 0
        self.answered += 1
        while self.oldest < self.next and self.waiting[self.oldest % self.slots] == 0:
            self.oldest += 1
        return True


cdef class AckIntake(Intake):
    """An intake that settles ordinary answers of one subscription itself."""

    cdef long long answers_sid
    cdef Window window

    def answer_to(self, long long sid, Window window not None):
        self.answers_sid = sid
        self.window = window

    cdef Step sort_out(self) noexcept nogil:
        if self.answers_sid != 0 and self.delivery.sid == self.answers_sid:
            return WANTING if self.settled() else STEP_MESSAGE
        return Intake.sort_out(self)

    cdef bint settled(self) noexcept nogil:
        """Whether this was an ordinary answer."""
        cdef const char* text = self.delivery.payload.data
        cdef size_t size = self.delivery.payload.size
        cdef int64_t number
        if self.delivery.header.size != 0 or size <= self.window.start_bytes:
            return False
        if memcmp(text, self.window.start, self.window.start_bytes) != 0:
            return False
        number = last_token(self.delivery.subject.data, self.delivery.subject.size)
        if self.window.answer(number) and is_duplicate(text, size):
            self.window.duplicates += 1
        return True


cdef int64_t last_token(const char* subject, size_t size) noexcept nogil:
    cdef size_t start = size
    while start > 0 and subject[start - 1] != c".":
        start -= 1
    return number_in(subject + start, size - start)


cdef bint is_duplicate(const char* text, size_t size) noexcept nogil:
    """Whether the key is there; nothing else in an ordinary answer has quotes and this word."""
    cdef const char* end = text + size
    cdef const char* quote = <const char*> memchr(text, c'"', size)
    while quote != NULL and end - quote >= DUPLICATE_BYTES:
        if memcmp(quote, b'"duplicate":', DUPLICATE_BYTES) == 0:
            return True
        quote = <const char*> memchr(quote + 1, c'"', end - quote - 1)
    return False
