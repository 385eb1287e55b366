"""`osvl serve`: the tools over HTTP, for trainers and agents that run elsewhere."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from opensearch_vl.cli.common import IndexOption, ToolsFor, WebOption, WikiOption, console

TOKEN_VARIABLE = "OSVL_TOOL_TOKEN"
_TOKEN_BYTES = 32


def register(app: typer.Typer, tools_for: ToolsFor) -> None:
    """Add the verbs to the command tree."""
    group = typer.Typer(no_args_is_help=True, help="Servers: the tools over HTTP.")
    app.add_typer(group, name="serve")

    @group.callback()
    def _group() -> None:
        """Keep `tools` a verb of its own, although it is the only one."""

    @group.command()
    def tools(
        wiki: WikiOption = None,
        index: IndexOption = None,
        web: WebOption = False,
        host: Annotated[
            str, typer.Option(help="Address to listen on; beyond loopback, put a TLS proxy in front.")
        ] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes any that is free.")] = 8765,
        store: Annotated[
            Path | None, typer.Option(help="Folder that keeps the pictures; default: a temporary one.")
        ] = None,
        origin: Annotated[
            list[str] | None, typer.Option(help="Web origin that may call, as https://demo.example; repeatable.")
        ] = None,
        max_sessions: Annotated[int, typer.Option(min=1, help="Sessions open at once.")] = 4_096,
        idle: Annotated[float, typer.Option(min=1, help="Seconds after which an unused session is gone.")] = 3_600.0,
        parallel: Annotated[int, typer.Option(min=1, help="Calls that run at once; others wait.")] = 16,
    ) -> None:
        """Serve the tools until Ctrl-C.

        Clients present the bearer token in OSVL_TOOL_TOKEN; if it is not set, one is made and printed on stderr.
        """
        import ipaddress
        import secrets
        import tempfile

        from opensearch_vl.images import ImageStore
        from opensearch_vl.redaction import env
        from opensearch_vl.tools.server import ToolServer, serve

        screen = console()
        given = env(TOKEN_VARIABLE)
        token = given or secrets.token_urlsafe(_TOKEN_BYTES)
        with contextlib.ExitStack() as stack:
            folder = store or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="osvl-")))
            toolbox = tools_for(wiki, index, web, ImageStore(folder), False)
            toolbox.max_parallel = parallel
            server = ToolServer(toolbox, token, allowed_origins=origin or (), max_sessions=max_sessions, idle_s=idle)

            def ready(address: str) -> None:
                screen.print(f"Serving {', '.join(toolbox.names)} on {address}", markup=False, soft_wrap=True)
                if given is None:
                    screen.print(f"{TOKEN_VARIABLE}={token}", markup=False, soft_wrap=True)
                with contextlib.suppress(ValueError):
                    if not ipaddress.ip_address(host).is_loopback:
                        screen.print("Reachable from outside, and not encrypted: put a TLS proxy in front.")

            serve(server, host, port, ready)
            screen.print(f"Stopped; {len(server)} open sessions dropped.")
