"""The options of a search, shared by the verbs that write text. What is not given is left to `predict.searching`."""

from typing import Annotated, Literal

import typer

Searcher = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
Engine = Annotated[
    Searcher,
    typer.Option("--engine", help="What computes: the network, compiled or in the open, or CTranslate2, also in int8."),
]
BulkEngine = Annotated[
    Literal["compiled", "open", "ctranslate2", "ctranslate2-int8", "ray"],
    typer.Option(
        "--engine",
        help="What computes: the network, compiled or in the open, CTranslate2, also in int8, or a Ray cluster "
        "(RAY_ADDRESS).",
    ),
]

Beam = Annotated[int | None, typer.Option("--beam", help="Hypotheses followed at once; 1, the default, is greedy.")]
NBest = Annotated[int | None, typer.Option("--nbest", help="Answers a line, best first, separated by tabs.")]
LengthPenalty = Annotated[
    float | None, typer.Option("--length-penalty", help="0 favours short answers; 1 is the default.")
]
CoveragePenalty = Annotated[
    float | None, typer.Option("--coverage-penalty", help="What it costs to leave parts of the source unattended.")
]
Sample = Annotated[bool, typer.Option("--sample", help="Draw tokens, instead of looking for the best.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="Below 1, what is likely becomes likelier.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="Draw among the k most probable tokens.")]
TopP = Annotated[
    float | None, typer.Option("--top-p", help="Draw among the fewest tokens with this probability together.")
]
MinP = Annotated[
    float | None, typer.Option("--min-p", help="Draw among tokens this many times as probable as the best, or more.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="With the number of a line, it decides what is drawn.")]
MinLength = Annotated[int | None, typer.Option("--min-length", help="The least tokens of an answer.")]
MaxLength = Annotated[int | None, typer.Option("--max-length", help="The most tokens of an answer.")]
Prefix = Annotated[str | None, typer.Option("--prefix", help="What every answer begins with.")]
Constraint = Annotated[
    list[str] | None, typer.Option("--constraint", help="What every answer contains; may be given several times.")
]
Avoid = Annotated[
    list[str] | None, typer.Option("--avoid", help="What no answer contains; may be given several times.")
]


def name_searcher(engine: Literal[Searcher, "ray"]) -> Searcher:
    """What searches; Ray only says where."""
    return "compiled" if engine == "ray" else engine
