"""One set of certificate files for all tests of the codecs."""

from __future__ import annotations

import pytest

from support.certs import common_name, shared_authority
from support.transport_codecs import Pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory = tmp_path_factory.mktemp("pki")
    authority = shared_authority()
    return Pki(
        directory=directory,
        authority=authority,
        ca_file=authority.write(directory, "ca")[0],
        server=authority.server().write(directory, "server"),
        client=authority.sign(common_name("client")).write(directory, "client"),
    )
