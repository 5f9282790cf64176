"""`penstock serve`: the server as its own process, with the reference's flags and signals.

Parses the command line, runs it, and reports every failure as one line on stderr and an exit code.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from penstock.server.config.command_line import (
    CheckConfig,
    RunServer,
    SendSignal,
    ShowHelp,
    ShowVersion,
    UsageError,
    options_from,
    parse_command_line,
    usage,
)
from penstock.server.config.config_file import ConfigError
from penstock.server.server_log import FATAL, LogOutput, log

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.config.command_line import Command
    from penstock.server.config.options import Options
    from penstock.server.server_app import Server

EXIT_FAILURE: Final = 1


def run(argv: list[str]) -> int:
    """Execute one command line; return the exit code."""
    try:
        command = parse_command_line(argv, os.environ)
    except UsageError as error:
        print(f"penstock: {error.message}", file=sys.stderr)
        if error.show_usage:
            print(usage())
        return error.exit_code
    return _carry_out(command)


def _carry_out(command: Command) -> int:
    if isinstance(command, ShowVersion | ShowHelp):
        print(command.text)
    elif isinstance(command, CheckConfig):
        print(command.message, file=sys.stderr)
    elif isinstance(command, SendSignal):
        from penstock.server.signal_command import send_signal

        return send_signal(command.request)
    else:
        return _serve(command)
    return 0


def _serve(command: RunServer) -> int:
    import uvloop

    for warning in command.warnings:
        print(warning, file=sys.stderr)
    output = LogOutput(command.options)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run_server(command, output))
    finally:
        output.close()


async def _run_server(command: RunServer, output: LogOutput) -> int:
    from penstock.server.server_app import Server, StartError
    from penstock.server.system.gc_policy import Freezer
    from penstock.server.system.loop_watch import CollectorWatch

    server = Server(command.options, reread=_rereader(command))
    # First: a reader of the ports file may send a signal, which would otherwise kill the process.
    _install_signals(server, output)
    # Objects alive after the start live until the end, so the collector need not scan them.
    gc.collect()
    gc.disable()
    try:
        await server.start()
    except StartError as error:
        log.log(FATAL, "%s", error)
        return EXIT_FAILURE
    gc.freeze()
    gc.callbacks.append(Freezer(server.service.count_assets))
    gc.callbacks.append(CollectorWatch(server.service.watch))
    gc.enable()
    await server.wait_stopped()
    log.info("Server Exiting..")
    return 0


def _rereader(command: RunServer) -> Callable[[], Options] | None:
    if not command.options.config_file:
        return None
    return lambda: options_from(command.flags, os.environ).options


def _install_signals(server: Server, output: LogOutput) -> None:
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def stop(name: str) -> None:
        log.info('Trapped "%s" signal', name)
        log.info("Initiating Shutdown...")
        stopping.add(asyncio.ensure_future(server.stop()))

    def reload() -> None:
        log.info('Trapped "hangup" signal')
        try:
            server.reload()
        except ConfigError as error:
            log.error("Failed to reload server configuration: %s", error)
        else:
            output.set_level(server.options)

    def lame_duck() -> None:
        log.info('Trapped "user defined signal 2" signal')
        server.start_lame_duck()

    loop.add_signal_handler(signal.SIGINT, stop, "interrupt")
    loop.add_signal_handler(signal.SIGTERM, stop, "terminated")
    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGUSR1, output.reopen)
    loop.add_signal_handler(signal.SIGUSR2, lame_duck)
