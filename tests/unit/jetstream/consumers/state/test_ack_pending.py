"""What is not settled, held against a dict: any order of changes, any question."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.jetstream.consumers.state.ack_pending import AckPending

GAPS_MAX = 64
seqs = st.integers(1, 60)
spans = st.lists(st.tuples(seqs, st.integers(0, 5)).map(lambda s: (s[0], s[0] + s[1])), max_size=4)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), seqs),
        st.tuples(st.just("put_run"), spans),
        st.tuples(st.just("pop"), seqs),
        st.tuples(st.just("settle"), spans),
        st.tuples(st.just("drop_through"), seqs),
    ),
    max_size=60,
)


class Twin:
    """The structure and the dict."""

    def __init__(self) -> None:
        self.real = AckPending()
        self.naive: dict[int, tuple[int, int]] = {}
        self.clock = 0
        self.floor = (0, 0)

    def put(self, seq: int) -> None:
        self.clock += 1
        self.real.put(seq, self.clock, -self.clock)
        self._put(seq, self.clock)

    def _put(self, seq: int, consumer_seq: int) -> None:
        first = self.naive.get(seq, (consumer_seq, 0))[0]
        self.naive[seq] = (first, -self.clock)

    def put_run(self, run: list[tuple[int, int]]) -> None:
        self.clock += 1
        self.real.put_run(self.clock, run, -self.clock)
        for number, seq in enumerate(each(run)):
            self._put(seq, self.clock + number)
        self.clock += 100

    def pop(self, seq: int) -> None:
        assert self.real.pop(seq) == self.naive.pop(seq, None)

    def drop_through(self, seq: int) -> None:
        assert self.real.through(seq) == sorted(known for known in self.naive if known <= seq)
        self.real.drop_through(seq)
        self.naive = {known: entry for known, entry in self.naive.items() if known > seq}

    def settle(self, run: list[tuple[int, int]]) -> None:
        top = (10_000, 10_000)
        floor, known = self.real.remove_spans(run, top, self.floor)
        assert list(each(known)) == self._settled(run, top)
        assert floor == self.floor
        self.floor = (0, 0) if not self.naive else self.floor

    def _settled(self, run: list[tuple[int, int]], top: tuple[int, int]) -> list[int]:
        gone = []
        for seq in each(run):
            entry = self.naive.pop(seq, None)
            if entry is None:
                continue
            gone.append(seq)
            to = top if not self.naive else self.floor
            if self.naive and entry[0] == self.floor[0] + 1:
                low = min(self.naive)
                to = (self.naive[low][0] - 1, low - 1)
            if to[1] >= self.floor[1]:
                self.floor = to
        return gone

    def compare(self) -> None:
        real, naive = self.real, self.naive
        assert real == naive
        assert list(real) == sorted(naive)
        assert (len(real), bool(real)) == (len(naive), bool(naive))
        assert real.lowest() == min(naive, default=0)
        assert real.held <= 2 * len(real) + GAPS_MAX
        for seq in (1, 7, 30, 59, 66):
            assert real.at_least(seq) == min((s for s in naive if s >= seq), default=0)
            assert (seq in real, real.get(seq)) == (seq in naive, naive.get(seq))


def each(run: list[tuple[int, int]]) -> list[int]:
    return [seq for first, last in run for seq in range(first, last + 1)]


@given(changes)
def test_it_is_dict_in_order(script: list[tuple[str, object]]) -> None:
    twin = Twin()
    for verb, argument in script:
        getattr(twin, verb)(argument)
        twin.compare()


def test_it_stays_as_small_as_what_is_there() -> None:
    unsettled = AckPending()
    unsettled.put(1, 1, 0)
    for seq in range(2, 5000):
        unsettled.put(seq, seq, 0)
        unsettled.pop(seq)
        assert unsettled.held <= 2 * len(unsettled) + GAPS_MAX
