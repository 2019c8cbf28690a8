"""`seqloom serve`: put models behind an address."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.options import Engine, PrecisionOption


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Folders of runs, or of published weights; NAME=FOLDER gives a name."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any free one.")] = 8000,
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keys of those who may ask: their SHA-256 and a name, by line.")
    ] = None,
    open: Annotated[bool, typer.Option("--open", help="Let anyone ask who can reach the address.")] = False,
    certificate: Annotated[Path | None, typer.Option(metavar="PEM", help="The certificate for TLS.")] = None,
    private_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Its private key.")] = None,
    explore: Annotated[
        bool, typer.Option("--explore", help="Also let those with a key look inside, at /explore/NAME/.")
    ] = False,
    engine: Annotated[
        Literal[Engine, "ray"],
        typer.Option(
            "--engine",
            help="What computes: the compiled network, the network itself (open), CTranslate2, also in int8, or "
            "replicas on a Ray cluster (RAY_ADDRESS).",
        ),
    ] = "compiled",
    precision: PrecisionOption = "float32",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Processes that compute, with one thread each; 1: this one, with all threads. By default, what is "
            "measured to be faster. With --engine ray: replicas; by default, one with all cores of each machine.",
        ),
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; more are told to come back (429).")] = 4096,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 4 << 20,
    max_items: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 1024,
    max_characters: Annotated[int, typer.Option(min=1, help="Characters of a request.")] = 200_000,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens that a request may ask for.")] = 2048,
    max_beams: Annotated[int, typer.Option(min=1, help="Beams that a request may ask for.")] = 16,
    max_answers: Annotated[int, typer.Option(min=1, help="Answers to a text that a request may ask for.")] = 16,
    max_seconds: Annotated[int, typer.Option(min=1, help="How long an answer may take.")] = 120,
) -> None:
    """Put models behind an address, for clients of LibreTranslate, OpenAI and others, and for a browser.

    Only this machine reaches the address, unless --host says otherwise; that needs --keys, or --open. SIGTERM answers
    what was accepted and ends; SIGHUP loads runs anew that were trained further.

    Example: seqloom serve runs/de-en runs/reviews --port 8000
    """
    from seqloom.cli.process import call_without_trimming, disable_trimming
    from seqloom.errors import ConfigError
    from seqloom.serve.launch import Place, bind_to, listen, run
    from seqloom.serve.limits import Limits
    from seqloom.serve.models import Models, read_names
    from seqloom.serve.pace import measure_pace, set_pace
    from seqloom.serve.service import Service

    disable_trimming()
    place = Place(host, port, keys, open, certificate, private_key, explore)
    place.check()
    if workers is not None and workers > 1 and engine.startswith("ctranslate2"):
        raise ConfigError("--workers: CTranslate2 has threads of its own; leave it out, or give --engine compiled")
    limits = Limits(max_body, max_items, max_characters, max_tokens, max_beams, max_answers, max_seconds)
    if explore and engine == "ray":
        raise typer.BadParameter("--explore keeps what it shows in one process; leave it out with --engine ray")
    with bind_to(host, port) as listening:
        if engine == "ray":
            from seqloom.serve.cluster import open_front

            screen, given = sys.stdout, (read_names(runs), limits, listening.getsockname()[1])
            with open_front(
                *given, workers=workers, queue=queue, precision=precision, prepare=disable_trimming
            ) as front:
                listen(front, front, place, listening, lambda line: typer.echo(line, screen))
            return
        models = Models(read_names(runs), engine, precision)
        pace = measure_pace(models) if workers is None else set_pace(workers)
        service = Service(models, limits, queue=queue, pace=pace, begin=call_without_trimming)
        run(service, place, listening, lambda line: typer.echo(line))
