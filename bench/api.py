"""Writes docs/api.md: the public surface with its signatures and docstrings. `make api` runs it; a test compares.

All of it is read from the source, so that signatures stand as they were written.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import seqloom

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
GROUPS = {
    "Functions": ("train", "load", "assemble"),
    "What you hold": ("Model", "Trace", "Run", "Tokenizer"),
    "What verbs answer": (
        *(
            "Translation",
            "Generation",
            "Classification",
            "Quantity",
            "Tagging",
            "TaggedSpan",
            "Filling",
            "Mask",
            "Candidate",
            "Score",
        ),
        *("TokenVectors", "Alignment", "Scorecard", "Result"),
    ),
    "Errors": ("SeqloomError", "ConfigError", "DataError", "RunError", "ShapeError"),
}
MEMBERS = {
    "Tokenizer": (
        *("load", "train", "save", "encode", "encode_batch", "decode", "decode_batch"),
        *("vocab_size", "target", "with_target"),
    ),
}
"""Of these classes, the members worth showing; of the others, all."""
SEARCH = ("SearchOptions", "Search")
"""Two classes, the second of which extends the first."""
ALIASES = {
    "seqloom.predict.search": ("EngineName",),
    "seqloom.predict.evaluate": ("Split",),
    "seqloom.runs.machine": ("Device",),
    "seqloom.predict.embed": ("Layer", "Pooling"),
    "seqloom.config.dump": ("Overrides",),
}
"""The types that signatures name."""


def render() -> str:
    """The page."""
    named = [name for names in GROUPS.values() for name in names]
    assert sorted([*named, "__version__"]) == sorted(seqloom.__all__), "the page must name the whole surface"
    lines = [
        "# The Python interface",
        "",
        "Everything that `import seqloom` gives, as the docstrings say it (`make api`",
    ]
    lines[-1] += "\nwrites this page). [using.md](using.md) shows it at work."
    for group, names in GROUPS.items():
        lines += ["", f"## {group}"]
        for name in names:
            value = getattr(seqloom, name)
            lines += ["", f"### {name}", "", *_describe(_find(value.__module__, name), f"seqloom.{name}")]
    lines += ["", "## Options of a search", "", "The keywords `**search` of `translate`, `generate` and `stream`:", ""]
    lines += [field for name in SEARCH for field in _list_fields(_find("seqloom.decode.options", name))]
    lines += ["", "## Types that signatures name", "", "```text"]
    for module, names in ALIASES.items():
        lines += [ast.unparse(_find(module, name)) for name in names]
    return "\n".join([*lines, "```"]) + "\n"


@cache
def _parse(module: str) -> ast.Module:
    __import__(module)
    return ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))


def _find(module: str, name: str) -> ast.stmt:
    for node in _parse(module).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        if any(getattr(target, "name", getattr(target, "id", "")) == name for target in targets):
            return node
    raise LookupError(f"{module} does not define {name}")


def _describe(node: ast.stmt, name: str) -> Iterator[str]:
    match node:
        case ast.FunctionDef():
            yield from ["```text", *_sign(node, name), "```", "", *_say(node)]
        case ast.ClassDef():
            yield from _say(node)
            if fields := _list_fields(node):
                yield from ("", *fields, *_list_properties(node))
            elif not any("Error" in ast.unparse(base) for base in node.bases):
                yield from _list_members(node, name.removeprefix("seqloom."))


def _list_properties(node: ast.ClassDef) -> Iterator[str]:
    """What a class with fields also tells."""
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and "property" in _decorators(one):
            assert one.returns is not None
            yield f"- `{one.name}: {ast.unparse(one.returns)}`: {' '.join(_say(one))}"


def _list_members(node: ast.ClassDef, name: str) -> Iterator[str]:
    """Properties, then methods; of a verb with several signatures, those that do not take and give lists."""
    chosen = MEMBERS.get(name)
    members = [one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
    members = [one for one in members if chosen is None or one.name in chosen]
    properties = [one for one in members if {"property", "cached_property"} & _decorators(one)]
    if properties:
        yield ""
    for one in properties:
        assert one.returns is not None
        yield f"- `{name}.{one.name}: {ast.unparse(one.returns)}`: {' '.join(_say(one)).replace('  ', ' ')}"
    for one in members:
        if one not in properties and not {"overload", f"{one.name}.setter"} & _decorators(one):
            overloads = [other for other in members if other.name == one.name and "overload" in _decorators(other)]
            single = [
                other for other in overloads if other.returns and not ast.unparse(other.returns).startswith("list[")
            ]
            signatures = [line for other in single or [one] for line in _sign(other, f"{name}.{one.name}")]
            yield from ["", "```text", *signatures, "```", "", *_say(one)]


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(one) for one in node.decorator_list}


def _list_fields(node: ast.stmt) -> list[str]:
    """The fields of a dataclass; a string under a field, or in its annotation, says what it is."""
    assert isinstance(node, ast.ClassDef)
    lines: list[str] = []
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            default = "" if one.value is None or "field(" in ast.unparse(one.value) else f" = {ast.unparse(one.value)}"
            kind, said = one.annotation, ""
            if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Annotated":
                kind, text = kind.slice.elts  # type: ignore[attr-defined]
                said = f": {ast.literal_eval(text)}"
            lines.append(f"- `{one.target.id}: {ast.unparse(kind)}{default}`{said}")
        elif lines and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            lines[-1] += f": {' '.join(str(one.value.value).split())}"
    return lines


def _sign(node: ast.FunctionDef, name: str) -> list[str]:
    arguments = node.args
    arguments.args = [one for one in arguments.args if one.arg not in ("self", "cls")]
    parts = re.split(r", (?=\*|\w+:)", ast.unparse(arguments).replace("'", '"'))
    parts = [re.sub(r"=(?:(lambda.*)|(.*))$", lambda found: f" = {found[2] or '...'}", part) for part in parts]
    returned = ast.unparse(node.returns) if node.returns is not None else "None"
    whole = f"{name}({', '.join(parts)}) -> {returned}"
    if len(whole) <= 110:
        return [whole]
    return [f"{name}(", *(f"    {part}," for part in parts), f") -> {returned}"]


def _say(node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """A docstring; its example becomes a block of its own."""
    text, _, example = (ast.get_docstring(node) or "").partition("\nExample:\n")
    lines = text.strip().splitlines()
    return [*lines, "", "```text", *textwrap.dedent(example).splitlines(), "```"] if example else lines


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
