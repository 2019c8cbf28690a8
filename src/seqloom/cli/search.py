"""`seqloom translate` and `seqloom generate`: a translation, or a continuation, of each line."""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqloom.cli.bulk import Lines, takes_lines
from seqloom.cli.options import takes_search

if TYPE_CHECKING:
    from seqloom.predict.results import Translation


@takes_lines(searches=True)
@takes_search()
def translate(
    search: dict[str, Any],
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Add ` ||| 0-0 1-2`: which source word each target word comes from.")
    ] = False,
    split: Annotated[
        Literal["sentence", "line"] | None,
        typer.Option(
            "--split",
            help="Translate each sentence by itself, or each line as a whole; by default, sentences if the model was "
            "trained on sentences.",
        ),
    ] = None,
    source_language: Annotated[
        str | None, typer.Option(help="A BCP 47 tag such as de, which says where sentences end; default: the run's.")
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="A BCP 47 tag such as en; default: the run's.")] = None,
    *,
    lines: Lines,
) -> None:
    """Translate each line; line N of the output belongs to line N of the input.

    A model that was trained on sentences translates a line of several sentences one by one; --split line translates it
    as a whole. A blank line stays blank, a line that cannot be read becomes [failed: WHY], and a line or sentence that
    is too long is translated in pieces; standard error names these lines. The exit code is 1 if any line failed.

    Example: echo "Guten Morgen" | seqloom translate runs/de-en --beam 5
    """
    from seqloom.decode.options import Search
    from seqloom.predict.translate import plan_splitting
    from seqloom.predict.translate import translate as apply

    wanted, align = Search(**search), alignments or lines.as_json
    model = lines.load(source_language=source_language, target_language=target_language)
    splitting = plan_splitting(model, split)

    def show(found: "Translation") -> str:
        answers = (found, *found.alternatives)
        if not alignments or not found.tokens:
            return "\t".join(answer.text for answer in answers)
        pairs = (" ".join(f"{source}-{target}" for source, target in answer.alignment) for answer in answers)
        return "\t".join(f"{answer.text} ||| {pair}" for answer, pair in zip(answers, pairs, strict=True))

    lines.answer(
        "translate",
        model,
        lambda model, numbers, texts: apply(model, texts, wanted, align=align, numbers=numbers, splitting=splitting),
        show,
        settings={**search, **asdict(splitting), "alignments": align, "engine": lines.engine},
    )


@takes_lines(searches=True)
@takes_search(without=("coverage_penalty",))
def generate(
    search: dict[str, Any],
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each token as soon as it is chosen, one line at a time.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="Draw this many texts that begin with nothing; no line is read."),
    ] = None,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Names of special tokens in a line, such as <s>, stand for these.")
    ] = False,
    *,
    lines: Lines,
) -> None:
    """Continue each line with a language model, and print the continuation without the line itself.

    If a line is too long, the model reads its last part, and standard error says so. After a blank line, a text begins
    with nothing; --count draws such texts without reading any lines.

    With --stream, the same text is printed token by token.

    Example: echo "Once upon a time" | seqloom generate runs/tales --sample --top-p 0.9 --seed 1
    """
    from seqloom.decode.options import Search
    from seqloom.predict.generate import generate as apply
    from seqloom.predict.generate import stream_text

    if count is not None:
        if lines.file is not None:
            raise typer.BadParameter("--count reads no lines; leave the file out, or --count")
        search = {"sample": True, **search}
    model, wanted = lines.load(), Search(**search)
    if stream:
        apply(model, [], wanted, numbers=[])  # an option the model cannot serve is refused before anything is read
        if lines.as_json or lines.output is not None or wanted.width > 1 or lines.place == "ray":
            raise typer.BadParameter("--stream prints one text as it grows; leave --json, -o, --beam, --nbest, ray out")
        verb = partial(stream_text, model, wanted=wanted, special=special_tokens)
        lines.stream("generate", model, lambda number, prompt: verb(prompt, number=number), blank=count)
        return
    lines.answer(
        "generate",
        model,
        lambda model, numbers, prompts: apply(model, prompts, wanted, special=special_tokens, numbers=numbers),
        lambda found: "\t".join(answer.text for answer in (found, *found.alternatives)),
        blank=count,
        settings={**search, "engine": lines.engine, "special_tokens": special_tokens},
    )
