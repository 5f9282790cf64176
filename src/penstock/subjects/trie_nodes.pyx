"""The nodes of the subscription trie: insertion, walks and pruning, as C functions.

One node per subject token. Literal children are in a small open-addressing table, `*` and `>` in
slots of their own. Subscriptions are linked to their node in intrusive lists, so that list entries
need no allocation. This module does not know caches, owners or Python values.
"""

from libc.stdlib cimport free, qsort
from libc.string cimport memchr, memcmp, memcpy, memset

cdef enum:
    GROUPS_LISTED_MAX = 16       # queue groups of a node before it gets an index by name

# ---------------------------------------------------------------------------- subjects

cdef bint has_empty_token(const char* subject, size_t n) noexcept nogil:
    cdef const char* p = subject
    cdef const char* end = subject + n
    cdef const char* dot
    if n == 0 or subject[0] == c'.' or subject[n - 1] == c'.':
        return True
    while True:
        dot = <const char*>memchr(p, c'.', end - p)
        if dot == NULL:
            return False
        if dot[1] == c'.':
            return True
        p = dot + 1

cdef bint valid_pattern(const char* subject, size_t n) noexcept nogil:
    """Return whether the subject is a valid pattern: no empty token, `>` only as the last one."""
    cdef const char* p = subject
    cdef const char* end = subject + n
    cdef size_t length
    if has_empty_token(subject, n):
        return False
    while True:
        length = token_length(p, end)
        if p + length == end:
            return True
        if is_rest(p, length):
            return False
        p += length + 1

cdef bint has_wildcard(const char* subject, size_t n) noexcept nogil:
    cdef const char* p = subject
    cdef const char* end = subject + n
    cdef size_t length
    while True:
        length = token_length(p, end)
        if is_star(p, length) or is_rest(p, length):
            return True
        if p + length == end:
            return False
        p += length + 1


# ------------------------------------------------------------------------------- nodes

cdef inline char* node_token(Node* node) noexcept nogil:
    return <char*>(node + 1)

cdef Node* new_node(Node* parent, int role, const char* token, size_t n,
                    uint32_t hashed) noexcept nogil:
    cdef Node* node = <Node*>xzalloc(sizeof(Node) + n)
    node.parent = parent
    node.role = role
    node.hash = hashed
    node.token_len = <uint16_t>n
    memcpy(node_token(node), token, n)
    return node

cdef inline Node* find_child(Node* parent, const char* token, size_t n,
                             uint32_t hashed) noexcept nogil:
    cdef uint32_t mask, i
    cdef Node* child
    if parent.nslots == 0:
        return NULL
    mask = parent.nslots - 1
    i = hashed & mask
    while True:
        child = parent.slots[i]
        if child == NULL:
            return NULL
        if (child.hash == hashed and child.token_len == n
                and memcmp(node_token(child), token, n) == 0):
            return child
        i = (i + 1) & mask

cdef void place_child(Node* parent, Node* child) noexcept nogil:
    cdef uint32_t mask = parent.nslots - 1
    cdef uint32_t i = child.hash & mask
    while parent.slots[i] != NULL:
        i = (i + 1) & mask
    parent.slots[i] = child

cdef void add_child(Node* parent, Node* child) noexcept nogil:
    cdef Node** old = parent.slots
    cdef uint32_t nold = parent.nslots
    cdef uint32_t i
    if 4 * (parent.nchildren + 1) > 3 * nold:
        parent.nslots = 2 if nold == 0 else 2 * nold
        parent.slots = <Node**>xzalloc(parent.nslots * sizeof(Node*))
        for i in range(nold):
            if old[i] != NULL:
                place_child(parent, old[i])
        free(old)
    place_child(parent, child)
    parent.nchildren += 1

cdef void remove_child(Node* parent, Node* child) noexcept nogil:
    """Remove a literal child, closing the gap so that probing needs no tombstones."""
    cdef uint32_t mask = parent.nslots - 1
    cdef uint32_t i = child.hash & mask
    cdef uint32_t j, home
    while parent.slots[i] != child:
        i = (i + 1) & mask
    parent.nchildren -= 1
    if parent.nchildren == 0:
        free(parent.slots)
        parent.slots = NULL
        parent.nslots = 0
        return
    j = i
    while True:
        parent.slots[i] = NULL
        while True:
            j = (j + 1) & mask
            if parent.slots[j] == NULL:
                return
            home = parent.slots[j].hash & mask
            if ((j - home) & mask) >= ((j - i) & mask):
                break
        parent.slots[i] = parent.slots[j]
        i = j

cdef Node* descend(Node* root, const char* p, size_t n, uint64_t seed,
                   bint create) noexcept nogil:
    """Return the node of a pattern; with `create`, create missing nodes."""
    cdef const char* end = p + n
    cdef Node* level = root
    cdef Node* node
    cdef size_t length
    cdef uint32_t hashed
    while True:
        length = token_length(p, end)
        if is_star(p, length):
            node = level.star
            if node == NULL and create:
                node = level.star = new_node(level, STAR, p, length, 0)
        elif is_rest(p, length):
            node = level.rest
            if node == NULL and create:
                node = level.rest = new_node(level, REST, p, length, 0)
        else:
            hashed = <uint32_t>hash_bytes(p, length, seed)
            node = find_child(level, p, length, hashed)
            if node == NULL and create:
                node = new_node(level, LITERAL, p, length, hashed)
                add_child(level, node)
        if node == NULL or p + length == end:
            return node
        level = node
        p += length + 1

cdef bint node_empty(Node* node) noexcept nogil:
    return (node.plain == NULL and node.groups == NULL and node.nchildren == 0
            and node.star == NULL and node.rest == NULL)

cdef void prune(Node* node) noexcept nogil:
    """Free the node and every ancestor that has become empty."""
    cdef Node* parent
    while node.parent != NULL and node_empty(node):
        parent = node.parent
        if node.role == STAR:
            parent.star = NULL
        elif node.role == REST:
            parent.rest = NULL
        else:
            remove_child(parent, node)
        free(node)
        node = parent

cdef size_t node_text(Node* node, char* out, size_t cap) noexcept nogil:
    """Write the node's subject if it fits into `cap`; return its length either way."""
    cdef size_t n = 0
    cdef Node* at = node
    cdef char* p
    while at.parent != NULL:
        n += at.token_len + 1
        at = at.parent
    n -= 1
    if n > cap:
        return n
    p = out + n
    while node.parent != NULL:
        p -= node.token_len
        memcpy(p, node_token(node), node.token_len)
        node = node.parent
        if node.parent != NULL:
            p -= 1
            p[0] = c'.'
    return n

cdef Sub* chain(Sub* list_, Sub* rest) noexcept nogil:
    cdef Sub* last = list_
    if list_ == NULL:
        return rest
    while last.next != NULL:
        last = last.next
    last.next = rest
    return list_

cdef Sub* free_tree(Node* node, Sub* subs) noexcept nogil:
    """Free a whole trie; return its subscriptions, linked before `subs`."""
    cdef uint32_t i
    cdef QueueGroup* group = node.groups
    cdef QueueGroup* next_group
    subs = chain(node.plain, subs)
    while group != NULL:
        next_group = group.next
        subs = chain(group.head, subs)
        free(group)
        group = next_group
    for i in range(node.nslots):
        if node.slots[i] != NULL:
            subs = free_tree(node.slots[i], subs)
    if node.star != NULL:
        subs = free_tree(node.star, subs)
    if node.rest != NULL:
        subs = free_tree(node.rest, subs)
    free_table(node)
    free(node.slots)
    free(node)
    return subs


# ----------------------------------------------------------------------- subscriptions

cdef Sub* new_sub(int kind, void* owner, const char* sid, size_t sid_len) noexcept nogil:
    cdef Sub* sub = <Sub*>xalloc(sizeof(Sub) + sid_len)
    memset(sub, 0, sizeof(Sub))
    sub.kind = kind
    sub.owner = owner
    sub.sid_len = <uint16_t>sid_len
    memcpy(sub_sid(sub), sid, sid_len)
    return sub

cdef inline bint is_named(QueueGroup* group, const char* name, size_t n,
                          uint32_t hashed) noexcept nogil:
    return (group.hash == hashed and group.name_len == n
            and memcmp(group_name(group), name, n) == 0)

cdef QueueGroup* group_of(Node* node, const char* name, size_t n, uint32_t hashed,
                          bint create) noexcept nogil:
    """Return the queue group of a node; with `create`, create it if it is missing."""
    cdef QueueGroup* group = node.groups
    cdef uint32_t i, listed = 0
    if node.table != NULL:
        i = hashed & (node.table.nslots - 1)
        group = node.table.slots[i]
        while group != NULL and not is_named(group, name, n, hashed):
            i = (i + 1) & (node.table.nslots - 1)
            group = node.table.slots[i]
    else:
        while group != NULL and not is_named(group, name, n, hashed):
            listed += 1
            group = group.next
    if group != NULL or not create:
        return group
    group = <QueueGroup*>xzalloc(sizeof(QueueGroup) + n)
    group.hash = hashed
    group.name_len = <uint32_t>n
    memcpy(group_name(group), name, n)
    group.next = node.groups
    if node.groups != NULL:
        node.groups.prev = group
    node.groups = group
    if node.table != NULL or listed >= GROUPS_LISTED_MAX:
        index_group(node, group)
    return group

cdef void place_group(GroupTable* table, QueueGroup* group) noexcept nogil:
    cdef uint32_t i = group.hash & (table.nslots - 1)
    while table.slots[i] != NULL:
        i = (i + 1) & (table.nslots - 1)
    table.slots[i] = group

cdef void index_group(Node* node, QueueGroup* added) noexcept nogil:
    """Add a new group to the index; rebuild an index that is missing or too small."""
    cdef GroupTable* table = node.table
    cdef QueueGroup* group
    if table == NULL:
        table = node.table = <GroupTable*>xzalloc(sizeof(GroupTable))
        group = node.groups
        while group != NULL:
            table.count += 1
            group = group.next
    else:
        table.count += 1
    if 4 * table.count <= 3 * table.nslots:
        place_group(table, added)
        return
    free(table.slots)
    table.nslots = max(2 * table.nslots, <uint32_t>(4 * GROUPS_LISTED_MAX))
    table.slots = <QueueGroup**>xzalloc(table.nslots * sizeof(QueueGroup*))
    group = node.groups
    while group != NULL:
        place_group(table, group)
        group = group.next

cdef void unindex_group(GroupTable* table, QueueGroup* group) noexcept nogil:
    """Remove a group, closing the gap so that probing needs no tombstones."""
    cdef uint32_t mask = table.nslots - 1
    cdef uint32_t i = group.hash & mask
    cdef uint32_t j, home
    while table.slots[i] != group:
        i = (i + 1) & mask
    table.count -= 1
    j = i
    while True:
        table.slots[i] = NULL
        while True:
            j = (j + 1) & mask
            if table.slots[j] == NULL:
                return
            home = table.slots[j].hash & mask
            if ((j - home) & mask) >= ((j - i) & mask):
                break
        table.slots[i] = table.slots[j]
        i = j

cdef void free_table(Node* node) noexcept nogil:
    if node.table != NULL:
        free(node.table.slots)
        free(node.table)
        node.table = NULL

cdef void drop_group(Node* node, QueueGroup* group) noexcept nogil:
    if node.table != NULL:
        unindex_group(node.table, group)
    if group.prev != NULL:
        group.prev.next = group.next
    else:
        node.groups = group.next
    if group.next != NULL:
        group.next.prev = group.prev
    free(group)
    if node.groups == NULL:
        free_table(node)


# -------------------------------------------------------------------------- collecting

cdef void collect_node(Collector* found, Node* node) noexcept nogil:
    cdef Sub* sub = node.plain
    cdef QueueGroup* group = node.groups
    while sub != NULL:
        if found.nplain == found.plain_cap:
            found.plain_cap = 2 * found.plain_cap + 16
            found.plain = <Sub**>xrealloc(found.plain, found.plain_cap * sizeof(Sub*))
        found.plain[found.nplain] = sub
        found.nplain += 1
        sub = sub.next
    while group != NULL:
        if found.ngroups == found.groups_cap:
            found.groups_cap = 2 * found.groups_cap + 16
            found.groups = <QueueGroup**>xrealloc(
                found.groups, found.groups_cap * sizeof(QueueGroup*))
        found.groups[found.ngroups] = group
        found.ngroups += 1
        group = group.next

cdef void walk(Node* level, const char* p, const char* end, uint64_t seed,
               Collector* found) noexcept nogil:
    """Collect the subscriptions below `level` that match the tokens from `p` on."""
    cdef size_t n
    cdef Node* node
    cdef bint last
    while True:
        n = token_length(p, end)
        last = p + n == end
        if level.rest != NULL:
            collect_node(found, level.rest)
        if level.star != NULL:
            if last:
                collect_node(found, level.star)
            else:
                found.branches += 1
                walk(level.star, p + n + 1, end, seed, found)
        node = find_child(level, p, n, <uint32_t>hash_bytes(p, n, seed))
        if node == NULL:
            return
        if last:
            collect_node(found, node)
            return
        level = node
        p += n + 1

cdef bint any_match(Node* level, const char* p, const char* end, uint64_t seed) noexcept nogil:
    cdef size_t n
    cdef Node* node
    cdef bint last
    while True:
        n = token_length(p, end)
        last = p + n == end
        if level.rest != NULL:
            return True
        if level.star != NULL:
            if last:
                if level.star.plain != NULL or level.star.groups != NULL:
                    return True
            elif any_match(level.star, p + n + 1, end, seed):
                return True
        node = find_child(level, p, n, <uint32_t>hash_bytes(p, n, seed))
        if node == NULL:
            return False
        if last:
            return node.plain != NULL or node.groups != NULL
        level = node
        p += n + 1

cdef void collect_below(Node* level, Collector* found) noexcept nogil:
    cdef uint32_t i
    for i in range(level.nslots):
        if level.slots[i] != NULL:
            collect_node(found, level.slots[i])
            collect_below(level.slots[i], found)
    if level.star != NULL:
        collect_node(found, level.star)
        collect_below(level.star, found)
    if level.rest != NULL:
        collect_node(found, level.rest)

cdef void overlap_child(Node* node, const char* p, size_t n, const char* end, uint64_t seed,
                        Collector* found) noexcept nogil:
    if p + n == end:
        collect_node(found, node)
    else:
        walk_overlap(node, p + n + 1, end, seed, found)

cdef void walk_overlap(Node* level, const char* p, const char* end, uint64_t seed,
                       Collector* found) noexcept nogil:
    """Like walk, but for a pattern: collect every subscription that overlaps it."""
    cdef size_t n = token_length(p, end)
    cdef uint32_t i
    cdef Node* node
    if is_rest(p, n):
        collect_below(level, found)
        return
    if level.rest != NULL:
        collect_node(found, level.rest)
    if level.star != NULL:
        overlap_child(level.star, p, n, end, seed, found)
    if is_star(p, n):
        for i in range(level.nslots):
            if level.slots[i] != NULL:
                overlap_child(level.slots[i], p, n, end, seed, found)
        return
    node = find_child(level, p, n, <uint32_t>hash_bytes(p, n, seed))
    if node != NULL:
        overlap_child(node, p, n, end, seed, found)

cdef int by_name(const void* left, const void* right) noexcept nogil:
    cdef QueueGroup* a = (<QueueGroup**>left)[0]
    cdef QueueGroup* b = (<QueueGroup**>right)[0]
    if a.hash != b.hash:
        return -1 if a.hash < b.hash else 1
    if a.name_len != b.name_len:
        return -1 if a.name_len < b.name_len else 1
    return memcmp(group_name(a), group_name(b), a.name_len)

cdef void gather_groups(Collector* found, Match* out) noexcept nogil:
    """Merge members of the same queue name into one group, whatever their patterns."""
    cdef uint32_t i, total = 0, ngroups = 0
    cdef QueueGroup* group
    cdef Sub* sub
    if found.ngroups > 1:
        qsort(found.groups, found.ngroups, sizeof(QueueGroup*), by_name)
    for i in range(found.ngroups):
        total += found.groups[i].count
    if total > found.members_cap:
        found.members_cap = 2 * total
        found.members = <Sub**>xrealloc(found.members, found.members_cap * sizeof(Sub*))
    if found.ngroups > found.spans_cap:
        found.spans_cap = 2 * found.ngroups
        found.spans = <GroupSpan*>xrealloc(found.spans, found.spans_cap * sizeof(GroupSpan))
    total = 0
    for i in range(found.ngroups):
        group = found.groups[i]
        if i == 0 or by_name(&found.groups[i - 1], &found.groups[i]) != 0:
            found.spans[ngroups].start = total
            found.spans[ngroups].count = 0
            ngroups += 1
        sub = group.head
        while sub != NULL:
            found.members[total] = sub
            total += 1
            sub = sub.next
        found.spans[ngroups - 1].count = total - found.spans[ngroups - 1].start
    out.members = found.members
    out.nmembers = total
    out.groups = found.spans
    out.ngroups = ngroups
