"""Imports joined with exports. Texts and order are compared with the reference elsewhere."""

from __future__ import annotations

import pytest

from penstock.broker.import_resolver import Shares, Sharing, SharingFault, join, tolerate
from penstock.broker.share_values import Export, Import, ShareKind


def offered(
    subject: str, kind: ShareKind = ShareKind.SERVICE, *accounts: str, position: int = 0
) -> Export:
    return Export(kind=kind, subject=subject, accounts=accounts, account_position=position)


def taken(account: str, subject: str, kind: ShareKind = ShareKind.SERVICE, to: str = "") -> Import:
    return Import(kind=kind, account=account, subject=subject, to=to)


def shared(**accounts: tuple[list[Export], list[Import]]) -> Sharing:
    return join(Shares(name, *both) for name, both in accounts.items())


def test_import_comes_from_export_that_covers_it() -> None:
    exports = [offered("a.>"), offered("a.b", ShareKind.SERVICE, "OTHER")]
    two = ([], [taken("ONE", "a.c", to="c")])
    sharing = shared(ONE=(exports, []), OTHER=([], []), TWO=two)
    (joined,) = sharing.services
    assert (joined.importer, joined.exporter, joined.export) == ("TWO", "ONE", exports[0])
    assert joined.renaming.outward("c") == "a.c"


def test_export_of_the_same_name_decides_alone() -> None:
    exports = [offered("a.>"), offered("a.b", ShareKind.SERVICE, "OTHER")]
    with pytest.raises(SharingFault, match=r'import "a\.b": service import not authorized$'):
        shared(ONE=(exports, []), OTHER=([], []), TWO=([], [taken("ONE", "a.b")]))


def test_token_may_have_to_name_importer() -> None:
    exports = [offered("a.*", position=2)]
    shared(ONE=(exports, []), TWO=([], [taken("ONE", "a.TWO")]))
    with pytest.raises(SharingFault, match="not authorized"):
        shared(ONE=(exports, []), TWO=([], [taken("ONE", "a.ONE")]))


def test_stream_is_no_service() -> None:
    with pytest.raises(SharingFault, match="stream import not authorized"):
        shared(ONE=([offered("a")], []), TWO=([], [taken("ONE", "a", ShareKind.STREAM)]))


@pytest.mark.parametrize("kind", list(ShareKind))
def test_nothing_comes_back_to_where_it_was_exported(kind: ShareKind) -> None:
    with pytest.raises(SharingFault, match="forms a cycle"):
        shared(
            ONE=([offered("a", kind)], [taken("THREE", "a", kind)]),
            TWO=([offered("a", kind)], [taken("ONE", "a", kind)]),
            THREE=([offered("a", kind)], [taken("TWO", "a", kind)]),
        )


def test_accounts_may_serve_each_other_with_different_things() -> None:
    sharing = shared(
        ONE=([offered("a")], [taken("TWO", "b")]), TWO=([offered("b")], [taken("ONE", "a")])
    )
    assert [one.importer for one in sharing.services] == ["ONE", "TWO"]


def test_same_is_not_imported_twice() -> None:
    exports = [offered("a.>", ShareKind.STREAM), offered("a.>")]
    for kind, told in (
        (ShareKind.STREAM, "already exists"),
        (ShareKind.SERVICE, "duplicate service import"),
    ):
        wanted = [taken("ONE", "a.b", kind), taken("ONE", "a.b", kind)]
        with pytest.raises(SharingFault, match=told):
            shared(ONE=(exports, []), TWO=([], wanted))


def test_prefix_has_no_wildcards() -> None:
    wanted = Import(kind=ShareKind.STREAM, account="ONE", subject="a", prefix="p.*")
    with pytest.raises(SharingFault, match="prefix can not contain wildcard"):
        shared(ONE=([offered("a", ShareKind.STREAM)], []), TWO=([], [wanted]))
    fine = Import(kind=ShareKind.STREAM, account="ONE", subject="a", prefix="p.")
    sharing = shared(ONE=([offered("a", ShareKind.STREAM)], []), TWO=([], [fine]))
    assert sharing.streams[0].renaming.ours == "p.a"


def test_unjoinable_rows_are_left_out_if_tolerated() -> None:
    good = Import(kind=ShareKind.STREAM, account="A", subject="a")
    bad = Import(kind=ShareKind.STREAM, account="A", subject="b")
    odd = Export(kind=ShareKind.SERVICE, subject="c", accounts=("NOBODY",))
    export = Export(kind=ShareKind.STREAM, subject="a")
    kept, faults = tolerate([Shares("A", [export, odd], []), Shares("B", [], [bad, good])])
    assert list(kept["A"].exports) == [export]
    assert list(kept["B"].imports) == [good]
    assert [name for name, _ in faults] == ["A", "B"]
    assert join(kept.values()).streams[0].importer == "B"
