"""Parse the command line into a command: run, check a configuration, send a signal, show a text.

The flags are the reference's and override the configuration file. A flag that this server does not
support is refused, never ignored. `options_from` can be called again with the same flags; a running
server reloads its configuration this way. The module reads only the configuration file; it prints
nothing and touches no process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from penstock.base.version import REFERENCE_VERSION
from penstock.server.config.config_file import ConfigError
from penstock.server.config.config_reader import LoadedConfig, check_options, normalise, read_config
from penstock.server.config.flag_parser import Flag, FlagKind, FlagValues, UsageError, scan
from penstock.server.config.options import ListenOnly, Options, TlsOptions
from penstock.server.config.quantities import parse_port, split_host_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CheckConfig",
    "Command",
    "RunServer",
    "SendSignal",
    "ShowHelp",
    "ShowVersion",
    "SignalRequest",
    "UsageError",
    "apply_flags",
    "options_from",
    "parse_command_line",
    "usage",
]

#: Tools expect this name, so the server uses it whatever the program is called.
PROGRAM = "nats-server"
SHORT_FLAG_MAX = 3  # letters; longer flags are shown with two dashes
SIGNALS = ("ldm", "stop", "quit", "term", "reopen", "reload")


class RunServer(Struct, frozen=True, kw_only=True):
    """Start a server. A reload passes `flags` to `options_from` again."""

    options: Options
    flags: FlagValues
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Run(options={self.options!r}, warnings={self.warnings!r})"  # flags hold secrets


class ShowVersion(Struct, frozen=True):
    """Print `text` on stdout."""

    text: str


class ShowHelp(Struct, frozen=True):
    """Print `text` on stdout."""

    text: str


class CheckConfig(Struct, frozen=True, kw_only=True):
    """The configuration file is valid: print `message` on stderr."""

    options: Options
    message: str


class SignalRequest(Struct, frozen=True, kw_only=True):
    """A command for a running server; `pid` is a process id, a pid file's name, or empty."""

    command: str
    pid: str = ""


class SendSignal(Struct, frozen=True):
    """Send a signal, then exit."""

    request: SignalRequest


Command: TypeAlias = RunServer | ShowVersion | ShowHelp | CheckConfig | SendSignal


def parse_command_line(argv: Sequence[str], environ: Mapping[str, str]) -> Command:
    """Return the command for the arguments (without the program's name); raise UsageError."""
    words = scan(argv, FLAGS)
    flags = words.flags
    if flags.get("version"):
        return ShowVersion(version_text())
    if flags.get("help"):
        return ShowHelp(usage())
    if flags.get("help_tls"):
        return ShowHelp(TLS_HELP)
    for word in words.rest[:1]:
        return _bare_command(word)
    if flags.get("signal"):
        return SendSignal(_signal(str(flags["signal"])))
    try:
        if flags.get("t"):
            return _check(flags, environ)
        loaded = options_from(flags, environ)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return RunServer(options=loaded.options, flags=flags, warnings=loaded.warnings)


def options_from(flags: FlagValues, environ: Mapping[str, str]) -> LoadedConfig:
    """Return the options of file and flags, normalised and checked; raise ConfigError."""
    file = str(flags.get("config", ""))
    loaded = read_config(file, environ) if file else LoadedConfig(options=Options())
    options = normalise(apply_flags(loaded.options, flags))
    check_options(options)
    return replace(loaded, options=options)


def apply_flags(options: Options, flags: FlagValues) -> Options:
    """Return the options overridden by the flags; raise ConfigError for an unsupported flag."""
    _refuse_unsupported(flags)
    plain = {field: flags[name] for name, field in _PLAIN.items() if name in flags}
    options = replace(options, **plain)
    options = _with_logging(options, flags)
    options = _with_credentials(options, flags)
    options = _with_tls(options, flags)
    return _with_cluster(options, flags)


def version_text() -> str:
    return f"{PROGRAM}: v{REFERENCE_VERSION}"


def usage() -> str:
    """Return the usage text: the flags by topic, one line each."""
    lines = ["Usage: penstock serve [flags]", "", "Flags take one dash or two."]
    for title, flags in GROUPS.items():
        lines += ["", f"{title}:"]
        for flag in flags:
            spellings = ", ".join(
                f"-{spelling}" if len(spelling) <= SHORT_FLAG_MAX else f"--{spelling}"
                for spelling in flag.spellings
            )
            lines.append(f"    {f'{spellings} {flag.argument}'.strip():<40} {flag.help}")
    return "\n".join(lines) + "\n"


def _bare_command(word: str) -> Command:
    if word.lower() == "version":
        return ShowVersion(version_text())
    if word.lower() == "help":
        return ShowHelp(usage())
    raise UsageError(f'unrecognized command: "{word}"')


def _signal(text: str) -> SignalRequest:
    command, _, rest = text.partition("=")
    pid, *more = rest.split("=")
    if more:
        raise UsageError(f"invalid signal parameters: [{' '.join(more)}]")
    if command not in SIGNALS:
        raise UsageError(f'unknown signal "{command}"')
    return SignalRequest(command=command, pid=pid)


def _check(flags: FlagValues, environ: Mapping[str, str]) -> CheckConfig:
    file = str(flags.get("config", ""))
    if not file:
        raise ConfigError("must specify [-c, --config] option to check configuration file syntax")
    loaded = read_config(file, environ)
    if loaded.warnings:
        raise ConfigError("\n".join(loaded.warnings))
    digest = loaded.options.config_digest
    message = f"{PROGRAM}: configuration file {file} is valid ({digest})"
    return CheckConfig(options=loaded.options, message=message)


def _refuse_unsupported(flags: FlagValues) -> None:
    for name in ("syslog", "remote_syslog", "profile"):
        if flags.get(name):
            raise ConfigError(f"-{name} is not supported by this server yet")


def _with_logging(options: Options, flags: FlagValues) -> Options:
    for name, fields in _LOGGING.items():
        if name in flags:
            options = replace(options, **dict.fromkeys(fields, flags[name]))
    return options


def _with_credentials(options: Options, flags: FlagValues) -> Options:
    given = {field: flags[name] for name, field in _CREDENTIALS.items() if name in flags}
    if not given:
        return options
    return replace(options, authorization=replace(options.authorization, **given))


def _with_tls(options: Options, flags: FlagValues) -> Options:
    if flags.get("tls") is False:
        return replace(options, tls=None)
    if not any(name.startswith("tls") for name in flags):
        return options
    tls = TlsOptions(
        cert_file=str(flags.get("tlscert", "")),
        key_file=str(flags.get("tlskey", "")),
        ca_file=str(flags.get("tlscacert", "")),
        verify=bool(flags.get("tlsverify", False)),
    )
    if not tls.cert_file:
        raise ConfigError("TLS Server certificate must be present and valid")
    if not tls.key_file:
        raise ConfigError("TLS Server private key must be present and valid")
    from penstock.server.net.codecs.tls_context import TlsConfigError, build_context

    try:
        build_context(tls)
    except TlsConfigError as error:
        raise ConfigError(str(error)) from None
    return replace(options, tls=tls)


def _with_cluster(options: Options, flags: FlagValues) -> Options:
    cluster = options.cluster or ListenOnly()
    address = flags.get("cluster_listen")
    if address == "":
        return replace(options, cluster=None)
    if address is not None:
        host, port = _cluster_address(str(address))
        cluster = replace(cluster, host=host, port=port)
    given = {field: flags[name] for name, field in _CLUSTER.items() if name in flags}
    cluster = replace(cluster, **given)
    if flags.get("routes"):
        if cluster.port == 0:
            raise ConfigError("solicited routes require cluster capabilities, e.g. --cluster")
        raise ConfigError("-routes is not supported by this server yet")
    if " " in cluster.name:
        raise ConfigError("cluster name cannot contain spaces")
    return options if cluster == ListenOnly() else replace(options, cluster=cluster)


def _cluster_address(address: str) -> tuple[str, int]:
    netloc = urlsplit(address).netloc
    credentials, _, host_port = netloc.rpartition("@")
    try:
        host, port = split_host_port(host_port)
    except ValueError:
        named = f"address {host_port}: " if host_port else ""
        raise ConfigError(f"{named}missing port in address") from None
    if credentials and ":" not in credentials:
        raise ConfigError("expected cluster password to be set")
    if credentials:
        raise ConfigError("cluster authorization is not supported by this server yet")
    try:
        return host, parse_port(port)
    except ValueError:
        raise ConfigError(f'invalid port "{port}" in cluster address') from None


def _bool(help_text: str, *spellings: str) -> Flag:
    return Flag(spellings, FlagKind.BOOL, "", help_text)


def _int(argument: str, help_text: str, *spellings: str) -> Flag:
    return Flag(spellings, FlagKind.INT, f"<{argument}>", help_text)


def _text(argument: str, help_text: str, *spellings: str) -> Flag:
    return Flag(spellings, FlagKind.TEXT, f"<{argument}>", help_text)


GROUPS: dict[str, tuple[Flag, ...]] = {
    "Server": (
        _text("host", "address for clients (0.0.0.0)", "a", "net", "addr"),
        _int("port", "port for clients (4222; -1 takes a free one)", "p", "port"),
        _text("name", "server name (the server id)", "n", "name", "server_name"),
        _text("file", "write the process id here", "P", "pid"),
        _int("port", "monitoring over HTTP", "m", "http_port"),
        _int("port", "monitoring over HTTPS", "ms", "https_port"),
        _text("file", "configuration file", "c", "config"),
        _bool("check the configuration file and end", "t"),
        _text("cmd[=pid]", f"signal a running server: {' '.join(SIGNALS)}", "sl", "signal"),
        _text("host:port", "address advertised to clients", "client_advertise"),
        _text("dir", "write <name>_<pid>.ports here", "ports_file_dir"),
    ),
    "Logging": (
        _text("file", "log to a file", "l", "log"),
        _bool("timestamps in the log (on)", "T", "logtime"),
        _bool("timestamps in UTC", "logtime_utc"),
        _bool("log to syslog (not supported)", "s", "syslog"),
        _text("addr", "log to a remote syslog (not supported)", "r", "remote_syslog"),
        _bool("debug lines", "D", "debug"),
        _bool("protocol lines", "V", "trace"),
        _bool("protocol lines, system account included", "VV"),
        _bool("debug and protocol lines", "DV"),
        _bool("debug and protocol lines, system account included", "DVV"),
        _int("bytes", "rotate the log file at this size", "log_size_limit"),
        _int("bytes", "cut traced messages", "max_traced_msg_len"),
    ),
    "Storage": (
        _bool("persistence", "js", "jetstream"),
        _text("dir", "directory for persisted data", "sd", "store_dir"),
    ),
    "Authorization": (
        _text("user", "user clients must give", "user"),
        _text("password", "password clients must give", "pass"),
        _text("token", "token clients must give", "auth"),
    ),
    "TLS": (
        _bool("serve TLS", "tls"),
        _text("file", "server certificate", "tlscert"),
        _text("file", "private key", "tlskey"),
        _bool("require client certificates", "tlsverify"),
        _text("file", "authorities for client certificates", "tlscacert"),
    ),
    "Cluster": (
        _text("urls", "routes to dial (not supported)", "routes"),
        _text("url", "address for routes", "cluster", "cluster_listen"),
        _text("name", "cluster name", "cluster_name"),
        _bool("keep cluster members from clients", "no_advertise"),
        _text("host:port", "address advertised to other servers", "cluster_advertise"),
        _int("number", "retries for implicit routes", "connect_retries"),
    ),
    "Other": (
        _int("port", "profiling (not supported)", "profile"),
        _bool("this text", "h", "help"),
        _bool("version", "v", "version"),
        _bool("about TLS", "help_tls"),
    ),
}
FLAGS = tuple(flag for group in GROUPS.values() for flag in group)

TLS_HELP = """\
TLS is set up with -tls, -tlscert and -tlskey, or in the configuration file:

    tls {
      cert_file: "server.pem"
      key_file:  "server-key.pem"
      ca_file:   "authorities.pem"   # for client certificates
      verify:    true                # require one
    }

File names are relative to the working directory.
"""

#: Flags that set one option each.
_PLAIN = {
    "addr": "host",
    "port": "port",
    "server_name": "server_name",
    "pid": "pid_file",
    "http_port": "http_port",
    "https_port": "https_port",
    "client_advertise": "client_advertise",
    "ports_file_dir": "ports_file_dir",
    "log": "log_file",
    "logtime": "logtime",
    "logtime_utc": "logtime_utc",
    "log_size_limit": "log_size_limit",
    "max_traced_msg_len": "max_traced_msg_len",
    "store_dir": "store_dir",
    "jetstream": "jetstream",
}
_LOGGING = {
    "debug": ("debug",),
    "trace": ("trace",),
    "VV": ("trace", "trace_verbose"),
    "DV": ("debug", "trace"),
    "DVV": ("debug", "trace", "trace_verbose"),
}
_CREDENTIALS = {"user": "user", "pass": "password", "auth": "token"}
_CLUSTER = {
    "cluster_name": "name",
    "no_advertise": "no_advertise",
    "cluster_advertise": "advertise",
}
