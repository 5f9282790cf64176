"""SidTable: maps a connection's subscription ids (sids) to its subscriptions.

Open addressing over pointers; each subscription stores its own sid.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp

from penstock.subjects.trie_nodes cimport hash_bytes, sub_sid, xzalloc


cdef inline uint32_t sid_slot(SidTable* table, const char* sid, size_t n) noexcept nogil:
    return <uint32_t>hash_bytes(sid, n, table.seed) & (table.cap - 1)

cdef Sub* sid_find(SidTable* table, const char* sid, size_t n) noexcept nogil:
    cdef uint32_t i
    cdef Sub* sub
    if table.count == 0:
        return NULL
    i = sid_slot(table, sid, n)
    while True:
        sub = table.slots[i]
        if sub == NULL:
            return NULL
        if sub.sid_len == n and memcmp(sub_sid(sub), sid, n) == 0:
            return sub
        i = (i + 1) & (table.cap - 1)

cdef void sid_place(SidTable* table, Sub* sub) noexcept nogil:
    cdef uint32_t i = sid_slot(table, sub_sid(sub), sub.sid_len)
    while table.slots[i] != NULL:
        i = (i + 1) & (table.cap - 1)
    table.slots[i] = sub

cdef void sid_add(SidTable* table, Sub* sub) noexcept nogil:
    cdef Sub** old = table.slots
    cdef uint32_t i, nold = table.cap
    if 4 * (table.count + 1) > 3 * table.cap:
        table.cap = 4 if nold == 0 else 2 * nold
        table.slots = <Sub**>xzalloc(table.cap * sizeof(Sub*))
        for i in range(nold):
            if old[i] != NULL:
                sid_place(table, old[i])
        free(old)
    sid_place(table, sub)
    table.count += 1

cdef void sid_remove(SidTable* table, Sub* sub) noexcept nogil:
    cdef uint32_t mask = table.cap - 1
    cdef uint32_t i = sid_slot(table, sub_sid(sub), sub.sid_len)
    cdef uint32_t j, home
    while table.slots[i] != sub:
        i = (i + 1) & mask
    table.count -= 1
    j = i
    while True:
        table.slots[i] = NULL
        while True:
            j = (j + 1) & mask
            if table.slots[j] == NULL:
                return
            home = sid_slot(table, sub_sid(table.slots[j]), table.slots[j].sid_len)
            if ((j - home) & mask) >= ((j - i) & mask):
                break
        table.slots[i] = table.slots[j]
        i = j
