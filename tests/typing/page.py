"""A page of a user's code. It is not run: mypy and pyright read it, and must find the types that are written here."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import assert_type

import numpy as np
import torch
from numpy.typing import NDArray

import seqloom
from seqloom import Classification, Generation, Model, Quantity, Run, Score, Scorecard, Tagging, Translation

run = seqloom.train("de-en.toml", {"train.minutes": 10}, out="runs/quick")
assert_type(run, Run)
seqloom.train(Path("de-en.toml"), ["train.minutes=10"])
seqloom.train("de-en.toml", train={"minutes": 10, "optimizer": {"learning_rate": 1e-3}}, size="tiny")

mt = seqloom.load(run, engine="open", device="auto")
assert_type(mt, Model)
assert_type(mt.translate("Guten Morgen"), Translation)
assert_type(mt.translate(["Guten Morgen"], beam=5, nbest=2, avoid=["Tag"]), list[Translation])
assert_type(mt.translate("Guten Morgen", align=False).alternatives[0].text, str)
assert_type(mt.score("a", "b"), Score)
assert_type(mt.score(["a"], ["b"]), list[Score])
assert_type(mt.generate("a", sample=True, top_p=0.9), Generation)
assert_type(mt.stream("a", max_length=3), Iterator[str])
assert_type(mt.classify("a"), Classification | Quantity)
assert_type(mt.classify(["a"], ["b"]), list[Classification | Quantity])
assert_type(mt.tag(["a b"]), list[Tagging])
assert_type(mt.embed(["a"]), NDArray[np.float32])
assert_type(mt.embed("a", level="token"), seqloom.TokenVectors)
assert_type(mt.fill("a [MASK]").masks[0].candidates[0].probability, float)
assert_type(mt.evaluate("test.de", "test.en", beam=4), Scorecard)
assert_type(mt.evaluate()["bleu"].value, float)
assert_type(mt.labels, tuple[str, ...])
assert_type(mt.network, torch.nn.Module)
assert_type(mt.folder, Path | None)

weights: dict[str, torch.Tensor] = torch.load("weights.pt")
settings = {"task": "classification", "model": {"encoder": {"num_layers": 2}}}
mine = seqloom.assemble(settings, "tokenizer.json", weights, labels=["bad", "good"])
assert_type(mine.save("runs/mine"), Path)


def ask(model: Model, texts: Sequence[str]) -> list[str]:
    """What somebody's own function would look like."""
    try:
        return [found.text for found in model.translate(texts, length_penalty=0.6)]
    except (seqloom.ConfigError, seqloom.DataError, seqloom.RunError) as error:
        return [str(error)]


# What is wrong must be found: a checker that is told to ignore an error here complains where there is none.
mt.translate("a", beams=4)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
mt.translate(1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
seqloom.load("runs/x", engine="fast")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seqloom.translate("a")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
