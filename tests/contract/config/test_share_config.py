"""Exports, imports and mappings in a file: taken or refused alike, and in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.configs import ours, reference
from support.servers import REFERENCE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(REFERENCE is None, reason="no nats-server to compare with")

ACCEPTED = [
    "accounts {A {exports: [{stream: a}, {service: b}, {}]}}",
    "accounts {A {exports: [{service: a, response: Stream, threshold: 5s, accounts: [B]}]}, B {}}",
    "accounts {A {exports: [{service: a, response_type: chunk, allow_trace: true}]}}",
    "accounts {A {exports: [{stream: 'a.*', account_token_position: 2}]}}",
    "accounts {A {exports: [{stream: '>'}]}, B {imports: [{stream: {account: A, subject: a}}]}}",
    "accounts {A {exports: [{stream: a}]}, "
    "B {imports: [{stream: {account: A, subject: a}, to: b}]}}",
    "accounts {A {exports: [{stream: a}]}, "
    "B {imports: [{stream: {account: A, subject: a}, prefix: b}]}}",
    "accounts {A {exports: [{service: 'a.*.*'}]}, "
    "B {imports: [{service: {account: A, subject: 'a.*.*'}, to: 'b.$2.$1', share: true}]}}",
    "accounts {A {exports: [{service: 'a.*', account_token_position: 2}]}, "
    "B {imports: [{service: {account: A, subject: a.B}}]}}",
    "accounts {A {exports: [{service: a}], imports: [{service: {account: B, subject: b}}]}, "
    "B {exports: [{service: b}], imports: [{service: {account: A, subject: a}}]}}",
    "mappings {a: b}",
    "maps {'a.*': 'b.$1', c: [{dest: d, weight: 20}, {destination: e, weight: '30%'}]}",
    "accounts {A {mappings {a: {dest: b, weight: 10, cluster: c}}}}",
    "accounts {A {msg_trace: a.b}}",
    "accounts {A {trace_dest {dest: a.b, sampling: 50}}}",
    "accounts {A {trace_dest {dest: a.b, sampling: '50%'}}}",
    "accounts {A {exports: [{stream: a}]}, "
    "B {imports: [{stream: {account: A, subject: a}, allow_trace: true}]}}",
]
REFUSED = [
    "accounts {A {msg_trace: 'a.*'}}",
    "accounts {A {msg_trace: 5}}",
    "accounts {A {trace_dest {dest: 5}}}",
    "accounts {A {trace_dest {dest: a, sampling: 0}}}",
    "accounts {A {trace_dest {dest: a, sampling: 101}}}",
    "accounts {A {trace_dest {dest: a, sampling: 'x%'}}}",
    "accounts {A {trace_dest {dest: a, sampling: true}}}",
    "accounts {A {trace_dest {dest: a, odd: 1}}}",
    "accounts {A {trace_dest {sampling: 5}}}",
    "accounts {A {exports: [{service: a}]}, "
    "B {imports: [{service: {account: A, subject: a}, allow_trace: true}]}}",
    "accounts {A {exports: a}}",
    "accounts {A {exports: [a]}}",
    "accounts {A {exports: [{stream: 5}]}}",
    "accounts {A {exports: [{stream: a, service: b}]}}",
    "accounts {A {exports: [{stream: a, response: stream}]}}",
    "accounts {A {exports: [{service: a, response: x}]}}",
    "accounts {A {exports: [{service: a, threshold: 5}]}}",
    "accounts {A {exports: [{service: a, x: y}]}}",
    "accounts {A {exports: [{service: a, accounts: [B]}]}}",
    "accounts {A {exports: [{stream: a, account_token_position: 1}]}}",
    "accounts {A {imports: a}}",
    "accounts {A {imports: [a]}}",
    "accounts {A {imports: [{stream: a}]}}",
    "accounts {A {imports: [{stream: {account: B}}]}}",
    "accounts {A {imports: [{stream: {account: B, subject: a}}]}}",
    "accounts {A {}, B {imports: [{stream: {account: A, subject: a}}]}}",
    "accounts {A {exports: [{stream: a}]}, B {imports: [{service: {account: A, subject: a}}]}}",
    "accounts {A {exports: [{stream: a, accounts: [C]}]}, C {}, "
    "B {imports: [{stream: {account: A, subject: a}}]}}",
    "accounts {A {exports: [{stream: a}]}, "
    "B {imports: [{stream: {account: A, subject: a}, prefix: 'b.*'}]}}",
    "accounts {A {exports: [{stream: 'a.*'}]}, "
    "B {imports: [{stream: {account: A, subject: 'a.*'}, to: b}]}}",
    "accounts {A {exports: [{stream: 'a.>'}]}, B {imports: "
    "[{stream: {account: A, subject: a.b}}, {stream: {account: A, subject: a.b}, to: c}]}}",
    "accounts {A {exports: [{service: 'a.*', account_token_position: 2}]}, "
    "B {imports: [{service: {account: A, subject: a.C}}]}}",
    "accounts {A {exports: [{service: a}], imports: [{service: {account: B, subject: a}}]}, "
    "B {exports: [{service: a}], imports: [{service: {account: A, subject: a}}]}}",
    "accounts {A {exports: [{stream: a}], imports: [{stream: {account: B, subject: a}}]}, "
    "B {exports: [{stream: a}], imports: [{stream: {account: A, subject: a}}]}}",
    "mappings {'a..b': c}",
    "mappings {a: 'b.$1'}",
    "mappings {a: 5}",
    "mappings {a: {dest: b}}",
    "mappings {a: {dest: b, weight: 101}}",
    "mappings {a: {dest: b, weight: x}}",
    "mappings {a: {dest: b, weight: 5, x: y}}",
    "mappings {a: [{dest: b, weight: 60}, {dest: c, weight: 60}]}",
    "mappings {a: [{dest: b, weight: 20}, {dest: b, weight: 20}]}",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_valid_exports_and_imports_are_accepted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text(text)
    code, message = reference(["-t", "-c", str(file)], tmp_path)
    assert code == 0, message
    assert ours(["-t", "-c", str(file)]) == (code, message)


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_exports_and_imports_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text(text)
    code, message = reference(["-t", "-c", str(file)], tmp_path)
    assert code == 1, message
    our_code, our_message = ours(["-t", "-c", str(file)])
    assert our_code == 1
    if "Error adding" in message:
        assert our_message == message
