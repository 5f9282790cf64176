"""SubList: the subscription trie with its match cache.

A match walks down the trie; its result is kept in a two-way cache after the second lookup of the
same subject.

Invariants: a cached match is never wrong. Adding or removing a literal subscription evicts exactly
its own entry. Adding or removing a wildcard subscription changes the stamp of every subject that it
could match (those that share its first token, or all of them), and an entry with an old stamp is a
miss. A removed subscription stays readable until `reclaim`, so a match may be iterated while its
members are removed.

SubList does not know connections: a subscription's owner is an opaque pointer to the layers above.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from penstock.subjects.trie_nodes cimport (
    LITERAL, SUB_CALLBACK, SUB_HANDLE, SUB_LANE, SUB_REMOVED, SUB_ROUTED, SUB_SHADOW, SUB_SINK,
    GroupSpan, any_match, collect_below,
    descend, drop_group, free_tree, gather_groups, group_name, group_of, has_empty_token,
    has_wildcard, hash_bytes, is_rest, is_star, new_node, new_sub, node_text, prune, push_front,
    token_length, unlink, valid_pattern, walk, walk_overlap, xalloc, xrealloc, xzalloc,
)

from typing import NamedTuple

cdef enum:
    SUBJECT_BYTES_MAX = 65535    # a node counts its token's bytes in sixteen bits
    CACHE_SETS = 16384           # sets of two entries
    CACHE_BYTES_MAX = 67108864   # of cached matches; above it, the cache is cleared
    STAMP_BUCKETS = 256          # stamps by first token
    FREED_MANY = 256             # freed subscriptions after which the allocator is made to merge
    MERGE_BYTES = 2048           # an allocation that makes it merge
    DOOR_SLOTS = 8192            # hashes of subjects looked up once, not cached yet


class InvalidSubject(ValueError):
    """A subject with an empty token, with tokens after `>`, or longer than SUBJECT_BYTES_MAX."""


class SubListStats(NamedTuple):
    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: float
    max_fanout: int
    avg_fanout: float


class Matches(NamedTuple):
    plain: list
    queues: list


cdef class Subscription:
    """A subject pattern, an optional queue name, and a value that the owner chooses."""

    def __cinit__(self, str subject, str queue=None, value=None):
        self.subject = subject
        self.queue = queue
        self.value = value
        self.sub = NULL
        self.home = NULL

    def __dealloc__(self):
        if self.sub != NULL:        # the collector frees it before its list
            self.sub.owner = NULL

    def __repr__(self) -> str:
        return f"Subscription({self.subject!r}, queue={self.queue!r}, value={self.value!r})"


# ---------------------------------------------------------------------------- the list

cdef inline void copied(char* to, const void* start, size_t n) noexcept nogil:
    """Copy a list; the address of an empty one is NULL, which `memcpy` does not allow."""
    if n:
        memcpy(to, start, n)


@cython.final
cdef class SubList:
    """Insert, remove and match subscriptions; the literal, `*` and `>` rules of NATS subjects."""

    def __cinit__(self, *, uint64_t seed=0, bint cache=True):
        self.root = new_node(NULL, LITERAL, b"", 0, 0)
        self.seed = seed
        self.stamps = <uint64_t*>xzalloc(STAMP_BUCKETS * sizeof(uint64_t))
        if cache:
            self.cache = <CacheSlot*>xzalloc(2 * CACHE_SETS * sizeof(CacheSlot))
            self.door = <uint32_t*>xzalloc(DOOR_SLOTS * sizeof(uint32_t))
        self.handles = set()
        self.watched = {}
        self.interest_changes = []

    def __dealloc__(self):
        cdef Sub* sub
        cdef Sub* following
        self.clear_cache()
        self.reclaim()
        sub = free_tree(self.root, NULL)
        while sub != NULL:
            following = sub.next
            if sub.kind != SUB_SINK and sub.owner != NULL:
                (<Subscription>sub.owner).sub = NULL
                (<Subscription>sub.owner).home = NULL
            free(sub)
            sub = following
        free(self.text)
        free(self.cache)
        free(self.door)
        free(self.stamps)
        free(self.found.plain)
        free(self.found.groups)
        free(self.found.members)
        free(self.found.spans)

    def __len__(self) -> int:
        return self.count

    # -- changing

    def insert(self, Subscription subscription not None, *, bint call=False,
               bint lane=False, bint routed=False, bint shadow=False) -> None:
        """Add a subscription; with `call`, the router calls its value for each message.

        With `lane` as well, the value is a Lane, which may take messages without a call. With
        `routed` the call gets one more argument first: the subject that was routed to, which may
        differ from the message's. A `shadow` represents a subscription of another account: it gets
        only messages published in this account.
        """
        cdef bytes subject = subscription.subject.encode("utf-8", "surrogateescape")
        cdef bytes queue = (subscription.queue or "").encode("utf-8", "surrogateescape")
        cdef Sub* sub
        if subscription.home != NULL:
            raise ValueError("this subscription is in a list already")
        if (PyBytes_GET_SIZE(subject) > SUBJECT_BYTES_MAX
                or not valid_pattern(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))):
            raise InvalidSubject(subscription.subject)
        sub = new_sub(SUB_CALLBACK if call else SUB_HANDLE, <void*>subscription, b"", 0)
        if lane:
            sub.flags |= SUB_LANE
        if routed:
            sub.flags |= SUB_ROUTED
        if shadow:
            sub.flags |= SUB_SHADOW
        self.add(sub, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
                 PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue))
        self.handles.add(subscription)
        subscription.sub = sub
        subscription.home = <void*>self

    def remove(self, Subscription subscription not None) -> None:
        if subscription.home != <void*>self:
            raise KeyError(subscription.subject)
        self.drop(subscription.sub)
        subscription.sub = NULL
        subscription.home = NULL
        self.reclaim()
        self.handles.discard(subscription)

    # -- queries

    def match(self, str subject not None) -> Matches:
        """Return the plain subscriptions and queue groups that a message on `subject` reaches."""
        cdef bytes raw = subject.encode("utf-8", "surrogateescape")
        cdef Match found
        cdef uint32_t i, j
        self.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), &found)
        plain = [as_object(found.plain[i]) for i in range(found.nplain)]
        queues = []
        for i in range(found.ngroups):
            queues.append([as_object(found.members[found.groups[i].start + j])
                           for j in range(found.groups[i].count)])
        return Matches(plain, queues)

    def has_interest(self, str subject not None) -> bool:
        cdef bytes raw = subject.encode("utf-8", "surrogateescape")
        return self.interested(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))

    def reverse_match(self, str pattern not None) -> list:
        """Return every subscription that overlaps `pattern`, including queue members."""
        cdef bytes raw = pattern.encode("utf-8", "surrogateescape")
        cdef const char* p = PyBytes_AS_STRING(raw)
        cdef size_t n = PyBytes_GET_SIZE(raw)
        if not valid_pattern(p, n):
            return []
        self.found.nplain = self.found.ngroups = 0
        walk_overlap(self.root, p, p + n, self.seed, &self.found)
        return self.collected()

    def all(self) -> list:
        self.found.nplain = self.found.ngroups = 0
        collect_below(self.root, &self.found)
        return self.collected()

    cdef list collected(self):
        cdef uint32_t i
        cdef Sub* sub
        cdef list out = [as_object(self.found.plain[i]) for i in range(self.found.nplain)]
        for i in range(self.found.ngroups):
            sub = self.found.groups[i].head
            while sub != NULL:
                out.append(as_object(sub))
                sub = sub.next
        return out

    def stats(self) -> SubListStats:
        cdef uint32_t i, fanout, widest = 0, entries = 0
        cdef uint64_t total = 0
        cdef CachedMatch* entry
        if self.cache != NULL:
            for i in range(2 * CACHE_SETS):
                entry = self.cache[i].entry
                if entry == NULL or not self.fresh(entry):
                    continue
                fanout = entry.match.nplain + entry.match.ngroups
                widest = max(widest, fanout)
                total += fanout
                entries += 1
        return SubListStats(
            num_subscriptions=self.count,
            num_cache=entries,
            num_inserts=self.inserts,
            num_removes=self.removes,
            num_matches=self.matches,
            cache_hit_rate=self.hits / self.matches if self.matches else 0.0,
            max_fanout=widest,
            avg_fanout=total / entries if entries else 0.0,
        )

    # -- interest in one exact subject

    def watch(self, str subject not None, str queue=None) -> bool:
        """Record, from now on, when interest in exactly this subject (and queue) appears or ends.

        Only subscriptions to the same literal subject count. Returns whether there is one now.
        """
        self.watched[(subject, queue)] = self.watched.get((subject, queue), 0) + 1
        return self.exact_interest(subject, queue)

    def unwatch(self, str subject not None, str queue=None) -> None:
        left = self.watched[(subject, queue)] - 1
        if left:
            self.watched[(subject, queue)] = left
        else:
            del self.watched[(subject, queue)]

    def drain_interest_changes(self) -> list:
        """Return (subject, queue, present) for every watched change since the last call."""
        changes, self.interest_changes = self.interest_changes, []
        return changes

    cdef bint exact_interest(self, str subject, object queue):
        cdef bytes raw = subject.encode("utf-8", "surrogateescape")
        cdef bytes name = (queue or "").encode("utf-8", "surrogateescape")
        cdef const char* p = PyBytes_AS_STRING(raw)
        cdef size_t n = PyBytes_GET_SIZE(raw)
        cdef Node* node
        if not valid_pattern(p, n):
            return False
        node = descend(self.root, p, n, self.seed, False)
        if node == NULL:
            return False
        if queue is None:
            return node.plain != NULL
        return group_of(node, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name),
                        self.name_hash(name), False) != NULL

    cdef uint32_t name_hash(self, bytes name):
        return <uint32_t>hash_bytes(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), self.seed)

    cdef int note_interest(self, Node* node, QueueGroup* group, bint present) except -1:
        subject = self.text[:self.subject_text(node)].decode("utf-8", "surrogateescape")
        queue = None
        if group != NULL:
            queue = group_name(group)[:group.name_len].decode("utf-8", "surrogateescape")
        if (subject, queue) in self.watched:
            self.interest_changes.append((subject, queue, bool(present)))
        return 0

    # -- C interface

    cdef size_t subject_text(self, Node* node) noexcept nogil:
        """Write the node's subject to self.text; return its length."""
        cdef size_t n = node_text(node, self.text, self.text_cap)
        if n > self.text_cap:
            self.text_cap = 2 * n
            self.text = <char*>xrealloc(self.text, self.text_cap)
            node_text(node, self.text, self.text_cap)
        return n

    cdef int add(self, Sub* sub, const char* subject, size_t n,
                 const char* queue, size_t queue_len) except -1:
        """Add `sub` to the trie. The subject must be a valid pattern."""
        cdef Node* node = descend(self.root, subject, n, self.seed, True)
        cdef QueueGroup* group = NULL
        cdef bint first
        if queue_len == 0:
            first = node.plain == NULL
            push_front(&node.plain, sub)
        else:
            group = group_of(node, queue, queue_len,
                             <uint32_t>hash_bytes(queue, queue_len, self.seed), True)
            first = group.head == NULL
            push_front(&group.head, sub)
            group.count += 1
        sub.node = node
        sub.group = group
        self.count += 1
        self.inserts += 1
        self.touch(subject, n)
        if first and self.watched:
            self.note_interest(node, group, True)
        return 0

    cdef void drop(self, Sub* sub) noexcept:
        """Remove `sub`; its memory stays readable until reclaim."""
        cdef Node* node = sub.node
        cdef QueueGroup* group = sub.group
        cdef bint last
        cdef size_t n = self.subject_text(node)
        self.touch(self.text, n)
        if group == NULL:
            unlink(&node.plain, sub)
            last = node.plain == NULL
        else:
            unlink(&group.head, sub)
            group.count -= 1
            last = group.head == NULL
        if last and self.watched:
            self.note_interest(node, group, False)
        if group != NULL and last:
            drop_group(node, group)
        prune(node)
        sub.node = NULL
        sub.group = NULL
        sub.flags |= SUB_REMOVED
        sub.next = self.dead_subs
        self.dead_subs = sub
        self.count -= 1
        self.removes += 1

    cdef void find(self, const char* subject, size_t n, Match* out) noexcept nogil:
        """Fill `out`; its pointers are valid until the next call here, or reclaim."""
        cdef uint64_t hashed = hash_bytes(subject, n, self.seed)
        cdef CacheSlot* slots = NULL
        cdef CachedMatch* entry
        cdef uint32_t way
        self.matches += 1
        if self.cache != NULL:
            slots = self.cache + 2 * (hashed & (CACHE_SETS - 1))
            for way in range(2):
                if slots[way].hash != hashed:
                    continue
                entry = slots[way].entry
                if (entry != NULL and entry.key_len == n and self.fresh(entry)
                        and memcmp(cached_key(entry), subject, n) == 0):
                    self.hits += 1
                    out[0] = entry.match
                    return
        memset(out, 0, sizeof(Match))
        if has_empty_token(subject, n):
            return
        self.found.nplain = self.found.ngroups = self.found.branches = 0
        walk(self.root, subject, subject + n, self.seed, &self.found)
        out.plain = self.found.plain
        out.nplain = self.found.nplain
        if self.found.ngroups:
            gather_groups(&self.found, out)
        if slots != NULL and self.asked_before(hashed):
            self.remember(slots, hashed, subject, n, out)
        out.cost = out.nplain + out.nmembers + self.found.branches

    cdef bint interested(self, const char* subject, size_t n) noexcept nogil:
        """Return whether anything matches; builds no list and does not use the cache."""
        if has_empty_token(subject, n):
            return False
        return any_match(self.root, subject, subject + n, self.seed)

    cdef void reclaim(self) noexcept nogil:
        """Free what was removed. No caller may hold a match across this."""
        cdef Sub* sub
        cdef CachedMatch* entry
        cdef uint32_t freed = 0
        while self.dead_subs != NULL:
            sub = self.dead_subs
            self.dead_subs = sub.next
            free(sub)
            freed += 1
        if freed >= FREED_MANY:
            # glibc keeps small freed blocks in lists and merges all of them at the next large
            # allocation: 300 ms after 300,000 subscriptions. This forces a merge after each slice.
            free(xalloc(MERGE_BYTES))
        while self.dead_matches != NULL:
            entry = self.dead_matches
            self.dead_matches = entry.next_dead
            free(entry)

    # -- the cache

    cdef bint fresh(self, CachedMatch* entry) noexcept nogil:
        return (entry.root_stamp == self.root_stamp
                and entry.bucket_stamp == self.stamps[entry.bucket])

    cdef bint asked_before(self, uint64_t hashed) noexcept nogil:
        """Return whether the hash was seen before: single-use inboxes must evict no hot entry."""
        cdef uint32_t tag = <uint32_t>(hashed >> 32) | 1
        cdef uint32_t at = <uint32_t>(hashed & (DOOR_SLOTS - 1))
        if self.door[at] == tag:
            return True
        self.door[at] = tag
        return False

    cdef uint32_t bucket_of(self, const char* subject, size_t n) noexcept nogil:
        return <uint32_t>hash_bytes(subject, token_length(subject, subject + n),
                                    self.seed) & (STAMP_BUCKETS - 1)

    cdef void remember(self, CacheSlot* slots, uint64_t hashed, const char* subject, size_t n,
                       Match* found) noexcept nogil:
        cdef size_t plain = found.nplain * sizeof(Sub*)
        cdef size_t members = found.nmembers * sizeof(Sub*)
        cdef size_t spans = found.ngroups * sizeof(GroupSpan)
        cdef size_t size = sizeof(CachedMatch) + plain + members + spans + n
        cdef CachedMatch* entry
        cdef char* at
        if self.cache_bytes + size > CACHE_BYTES_MAX:
            self.clear_cache()
            if size > CACHE_BYTES_MAX:
                return
        entry = <CachedMatch*>xalloc(size)
        entry.hash = hashed
        entry.bytes = size
        entry.key_len = <uint32_t>n
        entry.bucket = self.bucket_of(subject, n)
        entry.root_stamp = self.root_stamp
        entry.bucket_stamp = self.stamps[entry.bucket]
        entry.match = found[0]
        at = <char*>(entry + 1)
        entry.match.plain = <Sub**>at
        copied(at, found.plain, plain)
        at += plain
        entry.match.members = <Sub**>at
        copied(at, found.members, members)
        at += members
        entry.match.groups = <GroupSpan*>at
        copied(at, found.groups, spans)
        memcpy(at + spans, subject, n)
        if slots[0].entry != NULL and not self.fresh(slots[0].entry):
            self.evict(&slots[0])
        else:
            self.evict(&slots[1])
            slots[1] = slots[0]
        slots[0].hash = hashed
        slots[0].entry = entry
        self.cached += 1
        self.cache_bytes += size
        found[0] = entry.match

    cdef void evict(self, CacheSlot* slot) noexcept nogil:
        cdef CachedMatch* entry = slot.entry
        if entry == NULL:
            return
        slot.entry = NULL
        slot.hash = 0
        self.cached -= 1
        self.cache_bytes -= entry.bytes
        entry.next_dead = self.dead_matches
        self.dead_matches = entry

    cdef void clear_cache(self) noexcept nogil:
        cdef uint32_t i
        if self.cache == NULL:
            return
        for i in range(2 * CACHE_SETS):
            self.evict(&self.cache[i])

    cdef void touch(self, const char* subject, size_t n) noexcept nogil:
        """Invalidate the cached matches that a subscription to this pattern could change."""
        cdef uint64_t hashed
        cdef CacheSlot* slots
        cdef size_t first
        cdef uint32_t way
        if self.cache == NULL:
            return
        first = token_length(subject, subject + n)
        if is_star(subject, first) or is_rest(subject, first):
            self.root_stamp += 1
        elif has_wildcard(subject, n):
            self.stamps[self.bucket_of(subject, n)] += 1
        else:
            hashed = hash_bytes(subject, n, self.seed)
            slots = self.cache + 2 * (hashed & (CACHE_SETS - 1))
            for way in range(2):
                if slots[way].hash == hashed:
                    self.evict(&slots[way])


cdef inline char* cached_key(CachedMatch* entry) noexcept nogil:
    return <char*>entry + entry.bytes - entry.key_len

cdef str sub_subject(Sub* sub):
    cdef size_t n = node_text(sub.node, NULL, 0)
    cdef bytes raw = PyBytes_FromStringAndSize(NULL, n)
    node_text(sub.node, PyBytes_AS_STRING(raw), n)
    return raw.decode("utf-8", "surrogateescape")

cdef object sub_queue(Sub* sub):
    if sub.group == NULL:
        return None
    return group_name(sub.group)[:sub.group.name_len].decode("utf-8", "surrogateescape")

cdef Subscription as_object(Sub* sub):
    """Return the Subscription object; for a connection's subscription, a description of it."""
    if sub.kind != SUB_SINK:
        return <Subscription>sub.owner
    return Subscription(sub_subject(sub), sub_queue(sub))
