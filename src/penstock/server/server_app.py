"""Server: the server as one object; takes options, opens listeners, closes everything on stop.

The composition root: only this module creates the parts and connects them. `Server` runs in the
event loop that starts it, so it can be embedded; the command line runs it in a loop of its own. A
server can be started and stopped once.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from penstock.base.version import REFERENCE_VERSION, VERSION
from penstock.server.config.config_checks import check_options, has_plain_passwords, normalise
from penstock.server.config.config_reader import ConfigError, load_config
from penstock.server.config.options import ListenOnly, Options
from penstock.server.config.server_keywords import check_types, keyword_values
from penstock.server.config_reload import take_over
from penstock.server.file_modes import PID_FILE_MODE, opener
from penstock.server.net import close_reasons
from penstock.server.net.host_addresses import addresses_of, reachable
from penstock.server.net.listener import (
    Listener,
    Transport,
    bind,
    plain_transport,
    websocket_transport,
)
from penstock.server.ports_file import PortsFile
from penstock.server.server_log import log
from penstock.server.server_state import ServerState
from penstock.server.system.lame_duck import retire
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import TracebackType

    from penstock.server.monitor.http_server import Monitor

#: Listeners for other servers: the option, and its name in the log and the ports file.
UNSERVED: Final = (("cluster", "cluster"), ("gateway", "gateway"), ("leafnodes", "leafnodes"))
LOG_NAMES: Final = {"cluster": "route", "gateway": "gateway", "leafnodes": "leafnode"}
EMBEDDED_HOST: Final = "127.0.0.1"
HANDSHAKE_FIRST_WARNING: Final = (
    'Clients that are not using "TLS Handshake First" option will fail to connect'
)


class StartError(Exception):
    """The server cannot start; the text gives the reason."""


class Server:
    """A NATS server in this event loop.

        async with penstock.Server() as server:
            client = await nats.connect(server.url)

    Keywords are those of `Options`; `config` names a configuration file, which keywords override.
    An embedded server listens on 127.0.0.1 on any free port by default. Without a `store_dir` its
    data is deleted when it stops. `reread` returns new options for `reload`; with `config` the
    server sets it itself.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        config: str | os.PathLike[str] | None = None,
        reread: Callable[[], Options] | None = None,
        **overrides: object,
    ) -> None:
        self._store: TemporaryDirectory[str] | None = None
        self._is_embedded = options is None
        if options is None:
            options = _embedded_options(config, overrides)
            if config is not None:
                reread = partial(_embedded_options, config, overrides)
        elif overrides or config is not None:
            raise TypeError("give either options, or keywords and config")
        elif reread is None:  # options from a file are already type-checked
            check_types(options)
        check_options(options)
        self.options = options
        self._reread = reread
        self.service: ServerState
        self._listeners: dict[str, Listener] = {}
        self._unserved: dict[str, socket.socket] = {}
        self._monitor: Monitor | None = None
        self._ports_file: PortsFile | None = None
        self._stopped: asyncio.Event
        self._retirement: asyncio.Task[None] | None = None
        self._started = False

    # -- start and stop

    async def start(self) -> None:
        """Open every listener; when this returns, clients can connect. Raises StartError."""
        if self._started:
            raise RuntimeError("a server is started once")
        self._started = True
        self._stopped = asyncio.Event()
        if self._is_embedded and self.options.jetstream and not self.options.store_dir:
            self._store = TemporaryDirectory(prefix="penstock-")
            self.options = replace(self.options, store_dir=self._store.name)
        try:
            self.service = ServerState(self.options, asyncio.get_running_loop())
        except ConfigError as error:
            raise StartError(str(error)) from error
        self.service.reload = self.reload
        self._log_identity()
        try:
            self._write_pid()
            self.service.open_storage()
            await self._open_listeners()
        except (OSError, ValueError, StoreError) as error:
            await self.stop()
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop()
            raise
        self.service.start()
        log.info("Server is ready")
        if self.options.ports_file_dir:
            self._ports_file = PortsFile(Path(self.options.ports_file_dir))
            self._ports_file.write(self._ports())

    async def stop(self, reason: str = close_reasons.SERVER_SHUTDOWN) -> None:
        """Close listeners and connections. May be called again."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._retirement is not None:
            self._retirement.cancel()
        self._close_listeners()
        if self._monitor is not None:
            await self._monitor.stop()
        self.service.stop(reason)
        if self._store is not None:
            self._store.cleanup()
        if self._ports_file is not None:
            self._ports_file.remove()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def wait_stopped(self) -> None:
        await self._stopped.wait()

    def reload(self) -> list[str]:
        """Read the configuration file again; return what changed. Raises ConfigError."""
        if self._reread is None:
            raise ConfigError("can only reload config when a file is provided using -c or --config")
        fresh = self._reread()
        check_options(fresh)
        transports = self._transports(fresh)  # load certificates before anything changes
        changes = take_over(self.service, fresh)
        self.options = fresh
        for name, transport in transports.items():
            self._listeners[name].transport = transport
        return changes

    def _transports(self, options: Options) -> dict[str, Transport]:
        makers = {"nats": plain_transport, "websocket": websocket_transport}
        try:
            return {name: makers[name](options) for name in self._listeners}
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def start_lame_duck(self) -> None:
        """Stop accepting clients, notify the connected ones, close them one by one, then stop."""
        if self._retirement is None:
            self._close_listeners()
            self._retirement = asyncio.ensure_future(self._retire())

    async def _retire(self) -> None:
        await retire(self.service)
        self._retirement = None
        await self.stop()

    # -- addresses

    @property
    def port(self) -> int:
        """The client port."""
        return self._listeners["nats"].address[1]

    @property
    def url(self) -> str:
        """The URL for clients."""
        return self._url("nats", "nats")

    @property
    def websocket_url(self) -> str | None:
        if "websocket" not in self._listeners:
            return None
        websocket = self.options.websocket
        secure = websocket is not None and websocket.is_secure
        return self._url("websocket", "wss" if secure else "ws")

    @property
    def monitor_url(self) -> str | None:
        return None if self._monitor is None else self._monitor.url

    def _url(self, listener: str, scheme: str) -> str:
        host, port = self._listeners[listener].address
        return f"{scheme}://{join_address(reachable(host), port)}"

    # -- opening

    async def _open_listeners(self) -> None:
        await self._start_monitoring()
        for option, name in UNSERVED:
            self._open_unserved(option, name)
        self._open_websocket()
        if not self.options.dont_listen:
            self._open_clients()

    def _open_clients(self) -> None:
        listening = _bind_or_fail(self.options.host, self.options.port)
        listener = Listener(self.service, listening, plain_transport(self.options))
        self._listeners["nats"] = listener
        port = listener.address[1]
        self.service.client_address = (self.options.host, port)
        shown = join_address(self.options.host, port)
        log.info("Listening for client connections on %s", shown)
        if self.options.tls is not None:
            log.info("TLS required for client connections")
            if (
                self.options.tls.handshake_first
                and not self.options.tls.handshake_first_fallback_ns
            ):
                log.warning(HANDSHAKE_FIRST_WARNING)
        listener.start()

    def _open_websocket(self) -> None:
        options = self.options.websocket
        if options is None or options.port == 0:
            return
        host = options.host or self.options.host
        listening = _bind_or_fail(host, options.port, "websocket ")
        listener = Listener(self.service, listening, websocket_transport(self.options))
        self._listeners["websocket"] = listener
        self.service.bound_ports["websocket"] = listener.address[1]
        scheme = "wss" if options.is_secure else "ws"
        log.info(
            "Listening for websocket clients on %s://%s",
            scheme,
            join_address(host, listener.address[1]),
        )
        if not options.is_secure:
            log.warning("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
        listener.start()

    def _open_unserved(self, option: str, name: str) -> None:
        """Bind a port for other servers, so that no other process takes it, without serving it."""
        configured = getattr(self.options, option)
        if not isinstance(configured, ListenOnly) or configured.port == 0:
            return
        listening = _bind_or_fail(configured.host, configured.port, f"{LOG_NAMES[option]} ")
        self._unserved[name] = listening
        self.service.bound_ports[option] = listening.getsockname()[1]
        address = join_address(configured.host, listening.getsockname()[1])
        log.info("Listening for %s connections on %s", LOG_NAMES[option], address)
        log.warning("%s connections are not served by this server yet", LOG_NAMES[option])

    async def _start_monitoring(self) -> None:
        if not self.options.http_port and not self.options.https_port:
            return
        from penstock.server.monitor.http_server import Monitor

        self._monitor = Monitor(self.service)
        await self._monitor.start()

    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for listening in self._unserved.values():
            listening.close()

    def _log_identity(self) -> None:
        log.info("Starting penstock")
        log.info("  Version:  %s", VERSION)
        log.info("  Speaks:   NATS %s", REFERENCE_VERSION)
        log.info("  Name:     %s", self.service.server_name)
        log.info("  ID:       %s", self.service.server_id)
        if has_plain_passwords(self.options):
            log.warning("Plaintext passwords detected, use nkeys or bcrypt")
        if self.options.config_file:
            log.info("Using configuration file: %s", self.options.config_file)

    def _write_pid(self) -> None:
        if not self.options.pid_file:
            return
        try:
            with open(self.options.pid_file, "w", opener=opener(PID_FILE_MODE)) as pid_file:
                pid_file.write(str(os.getpid()))
        except OSError as error:
            raise StartError(f"Could not write pidfile: {error}") from error

    def _ports(self) -> dict[str, list[str]]:
        ports: dict[str, list[str]] = {}
        if "nats" in self._listeners:
            ports["nats"] = _urls("nats", self._listeners["nats"].address)
        if self._monitor is not None:
            ports["monitoring"] = _urls(*self._monitor.scheme_and_address)
        for name, listening in self._unserved.items():
            ports[name] = _urls("nats", listening.getsockname())
        if self.options.websocket is not None and "websocket" in self._listeners:
            scheme = "wss" if self.options.websocket.is_secure else "ws"
            ports["websocket"] = _urls(scheme, self._listeners["websocket"].address)
        return ports


def _urls(scheme: str, address: tuple[Any, ...]) -> list[str]:
    """Return the URLs of a listener, one for each of its addresses."""
    host, port = address[:2]
    return [f"{scheme}://{join_address(each, port)}" for each in addresses_of(host)]


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_or_fail(host: str, port: int, what: str = "") -> socket.socket:
    try:
        return bind(host, port)
    except OSError as error:
        address = join_address(host, max(port, 0))
        why = (error.strerror or str(error)).lower()
        raise StartError(f'Error listening on {what}port: {address}, "{why}"') from error


def _embedded_options(
    config: str | os.PathLike[str] | None, overrides: dict[str, object]
) -> Options:
    if config is not None:
        options = load_config(config, os.environ)
    else:
        options = Options(host=EMBEDDED_HOST, port=-1)
    if overrides.get("port") == 0:
        overrides = {**overrides, "port": -1}
    return normalise(replace(options, **keyword_values(overrides)))
