"""Window of numbered publishes in flight: tracks in C which replies are outstanding.

Every publish has a number, the last token of its reply subject. A plain ack (stored by the expected
stream, or a duplicate of a message it has) marks its number as answered. Any other reply is
returned like any other message, for `Publisher` to handle. Duplicates are listed with the sequence
of the original message until `take_repeats` returns them, and stored messages, if requested, as
runs of sequences until `take_stored` returns them.

Invariant: numbers below `oldest` are answered, numbers from `next` on are not sent, and at most
`slots` lie between, so a slot never stands for two numbers.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp

from penstock.bulk.wire_reader cimport STEP_MESSAGE, WANTING, WireReader, Step, number_in

cdef enum:
    SLOTS_MAX = 1048576
    DUPLICATE_BYTES = 12
    SEQUENCE_BYTES = 6
    PAIRS_FIRST = 256


cdef class Window:
    """The publishes in flight. `stream` is the stream that must store them; empty for any."""

    def __cinit__(self, int64_t slots, str stream="", bint lists_stored=False):
        if not 1 <= slots <= SLOTS_MAX:
            raise ValueError(f"a window has 1 to {SLOTS_MAX} slots")
        self.slots = slots
        self.lists_stored = lists_stored
        self.waiting = <unsigned char*> calloc(slots, 1)
        if self.waiting == NULL:
            raise MemoryError
        self.ack_start = b'{"stream":"%b",' % stream.encode() if stream else b'{"stream":'
        self.start = self.ack_start
        self.start_bytes = len(self.ack_start)

    def __dealloc__(self):
        free(self.waiting)
        free(self.repeats)
        free(self.stored)

    @property
    def room(self):
        """Number of publishes that may still be sent."""
        return self.slots - (self.next - self.oldest)

    def open(self, int64_t count):
        """Record `count` more publishes as in flight; return the number of the first."""
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

    def record_answer(self, int64_t number):
        """Record this number as answered; return False if it was not waiting."""
        return self.answer(number)

    def take_repeats(self):
        """Return the duplicates since the last call, as (number, sequence of the original)."""
        cdef Py_ssize_t index
        found = [
            (self.repeats[2 * index], self.repeats[2 * index + 1])
            for index in range(self.repeat_count)
        ]
        self.repeat_count = 0
        return found

    def take_stored(self):
        """Return the sequences stored since the last call, as runs (first, last)."""
        cdef Py_ssize_t index
        found = [
            (self.stored[2 * index], self.stored[2 * index + 1])
            for index in range(self.stored_count)
        ]
        self.stored_count = 0
        return found

    cdef bint note_repeat(self, int64_t number, int64_t sequence) noexcept nogil:
        """List a duplicate; return False if out of memory."""
        if not pair_fits(&self.repeats, self.repeat_count, &self.repeat_room):
            return False
        self.repeats[2 * self.repeat_count] = number
        self.repeats[2 * self.repeat_count + 1] = sequence
        self.repeat_count += 1
        return True

    cdef bint note_stored(self, int64_t sequence) noexcept nogil:
        """List a stored message; return False if out of memory."""
        cdef Py_ssize_t count = self.stored_count
        if count > 0 and self.stored[2 * count - 1] + 1 == sequence:
            self.stored[2 * count - 1] = sequence
            return True
        if not pair_fits(&self.stored, count, &self.stored_room):
            return False
        self.stored[2 * count] = sequence
        self.stored[2 * count + 1] = sequence
        self.stored_count += 1
        return True

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


cdef class PublishAcks(WireReader):
    """A wire reader that records the plain acks of one subscription in a window itself."""

    cdef long long answers_sid
    cdef Window window

    def answer_to(self, long long sid, Window window not None):
        self.answers_sid = sid
        self.window = window

    cdef Step sort_out(self) noexcept nogil:
        if self.answers_sid != 0 and self.delivery.sid == self.answers_sid:
            return WANTING if self.record_plain_ack() else STEP_MESSAGE
        return WireReader.sort_out(self)

    cdef bint record_plain_ack(self) noexcept nogil:
        """Record the reply if it is a plain ack; return True if it is."""
        cdef const char* text = self.delivery.payload.data
        cdef size_t size = self.delivery.payload.size
        cdef int64_t number
        if self.delivery.header.size != 0 or size <= self.window.start_bytes:
            return False
        if memcmp(text, self.window.start, self.window.start_bytes) != 0:
            return False
        number = last_token(self.delivery.subject.data, self.delivery.subject.size)
        if not self.window.awaits(number):
            return True
        if value_of(text, size, b'"duplicate":', DUPLICATE_BYTES) != NULL:
            if not self.window.note_repeat(number, sequence_in(text, size)):
                return False
            self.window.duplicates += 1
        elif self.window.lists_stored and not self.window.note_stored(sequence_in(text, size)):
            return False
        self.window.answer(number)
        return True


cdef bint pair_fits(int64_t** pairs, Py_ssize_t count, Py_ssize_t* room) noexcept nogil:
    """Make room for one more pair; return False if out of memory."""
    cdef Py_ssize_t wanted
    cdef int64_t* larger
    if count < room[0]:
        return True
    wanted = max(2 * room[0], PAIRS_FIRST)
    larger = <int64_t*> realloc(pairs[0], 2 * wanted * sizeof(int64_t))
    if larger == NULL:
        return False
    pairs[0] = larger
    room[0] = wanted
    return True


cdef int64_t last_token(const char* subject, size_t size) noexcept nogil:
    cdef size_t start = size
    while start > 0 and subject[start - 1] != c".":
        start -= 1
    return number_in(subject + start, size - start)


cdef int64_t sequence_in(const char* text, size_t size) noexcept nogil:
    """Return the sequence in a reply; negative if there is none."""
    cdef const char* digits = value_of(text, size, b'"seq":', SEQUENCE_BYTES)
    cdef size_t count = 0
    if digits == NULL:
        return -1
    while digits + count < text + size and c"0" <= digits[count] <= c"9":
        count += 1
    return number_in(digits, count)


cdef const char* value_of(
    const char* text, size_t size, const char* key, Py_ssize_t key_bytes
) noexcept nogil:
    """Return the text after a key; NULL if the key is missing. No value of a plain ack contains a
    key."""
    cdef const char* end = text + size
    cdef const char* quote = <const char*> memchr(text, c'"', size)
    while quote != NULL and end - quote >= key_bytes:
        if memcmp(quote, key, key_bytes) == 0:
            return quote + key_bytes
        quote = <const char*> memchr(quote + 1, c'"', end - quote - 1)
    return NULL
