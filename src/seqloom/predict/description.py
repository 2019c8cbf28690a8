"""A model in one line: its task, family, size, labels, languages, engine and folder."""

from seqloom.config.data import ParallelData
from seqloom.predict.predictor import Predictor


def describe(model: Predictor) -> str:
    """The line."""
    facts = [
        _describe_stacks(model),
        f"{_shorten(sum(weights.numel() for weights in model.peek().parameters()))} weights",
    ]
    if any(model.labels):
        more = ", …" if len(model.labels) > 4 else ""
        facts.append(f"{len(model.labels)} labels ({', '.join(model.labels[:4])}{more})")
    if isinstance(data := model.config.data, ParallelData):
        if data.source_language or data.target_language:
            facts.append(f"{data.source_language or '?'} → {data.target_language or '?'}")
        facts.append(f"translates by {data.source_unit or 'line'}")
    computed = "" if model.precision == "float32" else f" in {model.precision}"
    facts.append(f"engine {model.engine_name}{computed} on {model.device}")
    facts += [str(model.folder)] if model.folder is not None else []
    return f"<seqloom.Model {model.config.task}: {', '.join(facts)}>"


def _describe_stacks(model: Predictor) -> str:
    stacks = {stack: getattr(model.config.model, stack, None) for stack in ("encoder", "decoder")}
    families = {stack: section.family for stack, section in stacks.items() if section is not None}
    if len({*families.values()}) == 1:
        return str(next(iter(families.values())))
    return ", ".join(f"{family} {stack}" for stack, family in families.items())


def _shorten(count: int) -> str:
    """A number of weights as people say it: 812, 4.1k, 7.6M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return str(count)
