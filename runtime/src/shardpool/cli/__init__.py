"""The command line: one module a command, imported when it is used, so that `shardpool --help` and start-up stay quick."""

from __future__ import annotations

import importlib
import sys

import click

from shardpool import __version__
from shardpool.errors import ShardpoolError

# name: (module, one line of help); the help stands here too so that listing commands imports none of them
COMMANDS = {
    "serve": "Fill the model directory, then serve it to peers until SIGTERM.",
    "pull": "Fill the model directory and exit.",
    "inspect": "Show what a peer or a pool holds, live.",
    "plan": "Show rank, Service, port and pod of a topology.",
    "identity": "Compute the mx_source_id of an identity.",
    "gate": "Tell readiness of a ModelExpress engine's ranks.",
    "wait": "Hold a pod back until a peer is ready or it is elected.",
    "doctor": "Check DNS, ranks, identity, transport and limits from here.",
    "demo": "Run a seed and three replicas on loopback, killing one half way.",
    "healthcheck": "Exit 0 when the replica on this machine is ready.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"shardpool.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="shardpool")
def cli() -> None:
    """Model weights from the replicas that already hold them.

    Every option is also an environment variable (docs/settings.md). Exit codes: 0 done, 1 unexpected, 2 usage or settings, 3 no source,
    4 integrity, 5 deadline, 6 store, 7 another pool's peers only, 8 a rank's process died, 128 + signal when stopped.
    """


def main() -> None:
    """Run the command line and exit with the code of what happened."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left
        sys.exit(141)
    except ShardpoolError as error:
        click.echo(f"shardpool: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
